# Needs on the machine: Linux, Python 3.11 or newer, make, bash, util-linux and iproute2.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Python that the environment is made of.
PYTHON3 ?= python3
# Tests that run at the same time; those on the cluster mostly wait.
WORKERS ?= 4

PYTHON := .venv/bin/python
LOCALCLUSTER := $(PYTHON) -m localcluster
INSTALLED := .venv/.installed
CHART := charts/vllm-upgrade-operator
COMPILE := .venv/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate

.PHONY: help
help: ## Say what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: demo
demo: $(INSTALLED) ## Show one upgrade that is promoted and one that is rolled back (KEEP=1: leave it running)
	$(PYTHON) -m localcluster.demo

.PHONY: demo-vllm
demo-vllm: $(INSTALLED) ## The same on real vLLM on CPU: installs about 6 GB, takes long
	$(PYTHON) -m localcluster.realvllm.demo

.PHONY: up
up: $(INSTALLED) ## Start a local cluster with the operator, and say how to use it
	$(LOCALCLUSTER) up

.PHONY: down
down: $(INSTALLED) ## Stop what `make up` has started
	$(LOCALCLUSTER) down

# One run over all tests, within the cluster's namespaces, so that its last line counts them all; the
# permissions that they have used are judged at its end and counted as one test.
# A cluster that an interrupted run has left is stopped first: its operator may run older code.
.PHONY: test
test: export LOCALCLUSTER_DIR := .localcluster/test
test: $(INSTALLED) ## Run all tests, those on a real control plane too
	@trap '$(LOCALCLUSTER) down >/dev/null' EXIT; \
	$(LOCALCLUSTER) down >/dev/null; \
	$(LOCALCLUSTER) up; \
	$(LOCALCLUSTER) exec -- $(PYTHON) -m pytest --numprocesses=$(WORKERS) --dist=worksteal --permissions

.PHONY: test-unit
test-unit: $(INSTALLED) ## Run the fast tests alone
	$(PYTHON) -m pytest --numprocesses=auto tests/unit

# The cluster is the benchmark's own: nothing else runs in it, and its operator is new.
.PHONY: bench-reaction
bench-reaction: export LOCALCLUSTER_DIR := .localcluster/bench
bench-reaction: $(INSTALLED) ## Measure how fast the operator acts, what it takes and what it writes
	@trap '$(LOCALCLUSTER) down >/dev/null' EXIT; \
	$(LOCALCLUSTER) down >/dev/null; \
	$(LOCALCLUSTER) up; \
	$(LOCALCLUSTER) exec -- $(PYTHON) -m benchmarks.reaction --results benchmarks/results/reaction.json

.PHONY: bench-mix
bench-mix: $(INSTALLED) ## Measure how often the mix of requests is called different
	$(PYTHON) -m benchmarks.mix --results benchmarks/results/mix.json

.PHONY: bench-judge
bench-judge: $(INSTALLED) ## Measure how often and how fast the judge calls harm (QUICK=1: in a minute)
	$(PYTHON) -m benchmarks.judge $(if $(QUICK),--quick,--page docs/judge-benchmark.md) --results benchmarks/results/judge.json

.PHONY: bench-parsing
bench-parsing: $(INSTALLED) ## Measure how long logs and metrics take to read, beside prometheus_client
	$(PYTHON) -m benchmarks.parsing --results benchmarks/results/parsing.json

.PHONY: lint
lint: $(INSTALLED) ## Check style, types, layers and the Dockerfile; chart and generated files are checked by tests
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy -p vllm_upgrade_operator
	.venv/bin/mypy localcluster tests benchmarks
	.venv/bin/lint-imports
	.venv/bin/hadolint Dockerfile

.PHONY: generate
generate: $(INSTALLED) ## Make the CustomResourceDefinition from the models
	$(PYTHON) -m vllm_upgrade_operator.api.crd > crds/vllmupgrades.yaml.new
	mv crds/vllmupgrades.yaml.new crds/vllmupgrades.yaml
	cp crds/vllmupgrades.yaml $(CHART)/files/vllmupgrades.yaml

.PHONY: lock
lock: $(INSTALLED) ## Lock the Python packages anew; versions change only where they must
	$(COMPILE) pyproject.toml --output-file requirements/operator.lock
	$(COMPILE) pyproject.toml --extra dev --output-file requirements/dev.lock
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], "editables", sep="\n")' \
	| $(COMPILE) - --output-file requirements/build.lock

.PHONY: clean
clean: ## Stop this checkout's clusters; remove all that was made in it but keep built binaries
	@for directory in .localcluster/test .localcluster/bench .localcluster/demo .localcluster; do \
	  if [ -x $(PYTHON) ] && [ -e "$$directory/cluster.json" ]; then \
	    LOCALCLUSTER_DIR="$$directory" $(LOCALCLUSTER) down; \
	  fi; \
	done
	rm -rf .venv .localcluster benchmarks/.recorded dist build .hypothesis .mypy_cache .ruff_cache \
	  .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): requirements/dev.lock requirements/build.lock pyproject.toml
	@$(PYTHON3) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "error: Python 3.11 or newer is needed, this is " + sys.version.split()[0] + ": name another by make PYTHON3=...")'
	$(PYTHON3) -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	.venv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.lock
	.venv/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# Python 3.13: the newest of which every locked package brings a wheel, so that no compiler is
# needed; slim, for a C library that those wheels are built for.
FROM python:3.13-slim AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/build && python -m venv --without-pip /opt/operator

# Packages first: they change less often than the code.
COPY requirements/build.lock requirements/operator.lock /source/requirements/
RUN /opt/build/bin/pip install --require-hashes --only-binary=:all: \
        --requirement /source/requirements/build.lock \
    && /opt/build/bin/pip --python /opt/operator install --require-hashes --only-binary=:all: \
        --requirement /source/requirements/operator.lock

COPY pyproject.toml README.md LICENSE /source/
COPY operator /source/operator
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels /source \
    && /opt/build/bin/pip --python /opt/operator install --no-deps --no-index /wheels/*.whl


FROM python:3.13-slim

COPY --from=build /opt/operator /opt/operator
# Bytecode was made by the installation: the file system of the pod is read-only.
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# A number: Kubernetes can tell that it is not root.
USER 65532:65532
EXPOSE 8080 9090
ENTRYPOINT ["/opt/operator/bin/vllm-upgrade-operator"]

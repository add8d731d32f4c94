"""Each public shape of a deployment: the right container, port and flags, or the right refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.vllm import shapes
from vllm_upgrade_operator.vllm.container import find_container, metrics_port, scheme
from vllm_upgrade_operator.vllm.errors import TemplateError
from vllm_upgrade_operator.vllm.facts.setup import Machine, machine_of
from vllm_upgrade_operator.vllm.reading import Mounted, mounted, read_options
from vllm_upgrade_operator.vllm.versions import Version

if TYPE_CHECKING:
    from vllm_upgrade_operator.vllm.options import Options

NEWEST = Version(0, 33)


def options(spec: shapes.Spec, **known: Any) -> Options:
    return read_options(find_container(spec), NEWEST, **known)


@pytest.mark.parametrize(
    ("spec", "name", "port"),
    [
        (shapes.DOCS, "mistral-7b", 8000),
        (shapes.DOCS_AMD, "mistral-7b", 8000),
        (shapes.OWN_CHART, "vllm", 8000),
        (shapes.PRODUCTION_STACK, "vllm", 8000),
        (shapes.MODELSERVICE_DECODE, "vllm", 8200),
        (shapes.LLM_D_GUIDE, "modelserver", 8000),
        (shapes.KSERVE_LLM, "main", 8000),
        (shapes.KSERVE_RUNTIME, "kserve-container", 8080),
        (shapes.GATEWAY_API, "vllm", 8000),
        (shapes.ADK_TUTORIAL, "inference-server", 8000),
        (shapes.LWS_LEADER, "vllm-leader", 8080),
        (shapes.KUBEAI, "server", 8000),
        (shapes.AIBRIX_PAIR, "prefill", 8000),
        (shapes.AIBRIX_RAY, "ray-head", 8000),
        (shapes.EKS_NEURON, "inference", 8000),
    ],
)
def test_the_container_and_its_port(spec: shapes.Spec, name: str, port: int) -> None:
    container = find_container(spec)
    assert container["name"] == name
    assert metrics_port(container) == port


@pytest.mark.parametrize(
    ("spec", "model", "flags"),
    [
        (shapes.DOCS, "acme/mistral-7b", {"max-num-batched-tokens": "1024"}),
        (shapes.DOCS_AMD, "acme/mistral-7b", {"max-num-seqs": "16"}),
        (shapes.OWN_CHART, "/data/", {"served-model-name": "opt-125m", "host": "::"}),
        (shapes.PRODUCTION_STACK, "acme/llama-8b", {"tensor-parallel-size": "2"}),
        (shapes.MODELSERVICE_DECODE, "acme/llama-8b", {"port": "8200"}),
        (shapes.LLM_D_GUIDE, "acme/llama-70b", {"shutdown-timeout": "45"}),
        (shapes.KSERVE_LLM, "/mnt/models", {"port": "8000", "served-model-name": "llama"}),
        (shapes.KSERVE_RUNTIME, "/mnt/models", {"served-model-name": "llama"}),
        (shapes.GATEWAY_API, "acme/llama-8b", {"max-num-seqs": "1024", "max-loras": "2"}),
        (shapes.ADK_TUTORIAL, "acme/llama-8b", {"chat-template": "/templates/llama.jinja"}),
        (shapes.LWS_LEADER, "acme/llama-405b", {"pipeline-parallel-size": "2"}),
        (shapes.KUBEAI, "acme/llama-8b", {"max-model-len": "8192"}),
        (shapes.AIBRIX_PAIR, "/models/qwen3-8b", {"uvicorn-log-level": "warning"}),
        (shapes.AIBRIX_RAY, "/models/deepseek-r1", {"distributed-executor-backend": "ray"}),
    ],
)
def test_the_model_and_flags(spec: shapes.Spec, model: str, flags: dict[str, str]) -> None:
    found = options(spec)
    assert found.model == model
    assert {name: found.text(name) for name in flags} == flags
    assert (found.unknown, found.ambiguous) == ((), {})


def test_a_pair_of_prefill_and_decode_is_seen() -> None:
    for spec in (shapes.MODELSERVICE_DECODE, shapes.AIBRIX_PAIR):
        transfer = options(spec).settings("kv-transfer-config")
        assert transfer is not None
        assert transfer["kv_connector"] == "NixlConnector"


def test_what_only_the_pod_knows_is_said() -> None:
    assert options(shapes.KSERVE_LLM).unread == (
        "the word '${VLLM_ADDITIONAL_ARGS}' may become any flags",
        "the word '$@' may become any flags",
    )
    assert options(shapes.OWN_CHART).unread_environment == (
        "variables come from Secret s3",
        "variables come from ConfigMap settings",
    )
    assert options(shapes.LWS_WORKER).unread == ("its shell script does not start vLLM itself",)
    for spec in (shapes.DOCS, shapes.GATEWAY_API, shapes.ADK_TUTORIAL, shapes.AIBRIX_RAY):
        assert options(spec).unread == ()


def test_flags_in_a_file_of_a_config_map() -> None:
    container = find_container(shapes.EKS_NEURON)
    path = "/etc/vllm/config.yaml"
    assert mounted(shapes.EKS_NEURON, container, path) == Mounted("vllm-settings", "config.yaml")
    assert options(shapes.EKS_NEURON).unread == (
        f"flags are in the file {path!r}, which cannot be read here",
    )
    found = options(shapes.EKS_NEURON, configs={path: {"max-num-queued-reqs": 64}})
    assert (found.number("max-num-queued-reqs"), found.unread) == (64, ())


def test_tls_is_seen() -> None:
    assert scheme(find_container(shapes.KSERVE_LLM)) == "https"
    by_probe = {"args": ["m"], "readinessProbe": {"httpGet": {"scheme": "HTTPS"}}}
    assert scheme(by_probe) == "https"
    assert scheme({"args": ["m", "--ssl-certfile=/c"]}) == "https"
    for spec in (shapes.DOCS, shapes.LWS_LEADER, shapes.KUBEAI):
        assert scheme(find_container(spec)) == "http"


def test_the_device_is_seen() -> None:
    assert machine_of(find_container(shapes.DOCS)) == Machine(triton=True, rocm=False)
    assert machine_of(find_container(shapes.DOCS_AMD)) == Machine(triton=True, rocm=True)
    assert machine_of(find_container(shapes.EKS_NEURON)) == Machine()


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (shapes.RAY_SERVE, "no container of the target runs vLLM.*ray-head"),
        (shapes.DYNAMO, "container 'main' runs dynamo.vllm, .*upgrade it by what deploys it"),
        (shapes.KAITO, "no container of the target runs vLLM.*workspace-phi.*name the one"),
    ],
)
def test_what_is_no_vllm_server_is_refused(spec: shapes.Spec, says: str) -> None:
    with pytest.raises(TemplateError, match=says) as caught:
        find_container(spec)
    assert caught.value.field == "spec.container"


def test_a_program_of_its_own_can_be_named() -> None:
    container = find_container(shapes.KAITO, "workspace-phi")
    assert metrics_port(container) == 5000
    assert read_options(container, NEWEST).unread == (
        "its shell script does not start vLLM itself",
    )

"""Which container of a pod template runs vLLM, and where it listens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.vllm.command import is_vllm_command, words
from vllm_upgrade_operator.vllm.errors import TemplateError
from vllm_upgrade_operator.vllm.facts import known
from vllm_upgrade_operator.vllm.reading import read_options

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PORT = 8000
"""What `vllm serve` listens on without `--port`."""

_IMAGE_WORD = re.compile(r"[/_-]")
# Words in names of images that come with vLLM: this operator, routers, exporters.
_BESIDE = frozenset({"controller", "exporter", "gateway", "operator", "proxy", "router"})
_PORT_NAMES = ("metrics", "http")
# Programs that have vLLM in them and serve something else in its place, by their module.
_OTHER_SERVERS = ("dynamo.vllm",)
# Images of such programs: Ray Serve's for language models, and KAITO's base of its presets.
_IMAGES_WITH_VLLM = frozenset({"ray-llm", "kaito-base"})


def find_container(pod_spec: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
    """Find the container that runs vLLM.

    By its name where one is given; else by its command (`vllm serve`, or vLLM's module); else by
    its image. Its position says nothing: sidecars are injected first.

    Raises:
        TemplateError: There is none, or more than one: the names are in the message.
    """
    containers = list(pod_spec.get("containers") or ())
    names = ", ".join(str(c.get("name")) for c in containers) or "none"
    if name is not None:
        for container in containers:
            if container.get("name") == name:
                return dict(container)
        raise TemplateError(
            "spec.container", f"there is no container {name!r} in the target (there are: {names})"
        )
    for is_it in (_by_command, _by_image):
        found = [c for c in containers if is_it(c)]
        if len(found) == 1:
            return _own_server(found[0])
        if found:
            several = ", ".join(str(c.get("name")) for c in found)
            raise TemplateError(
                "spec.container", f"more than one container runs vLLM ({several}): name one"
            )
    raise TemplateError(
        "spec.container",
        f"no container of the target runs vLLM by its command or image (there are: {names}): "
        "name the one that does",
    )


def serving_containers(pod_spec: Mapping[str, Any]) -> list[str]:
    """Names of the containers that run vLLM by their command or image, also where several do."""
    containers = pod_spec.get("containers") or ()
    return [str(c.get("name")) for c in containers if _by_command(c) or _by_image(c)]


def vllm_containers(pod_spec: Mapping[str, Any]) -> list[str]:
    """Names of the containers that have vLLM in them, whatever they serve.

    Also those whose image has vLLM in it without its name.
    """
    within = [str(c.get("name")) for c in pod_spec.get("containers") or () if _within_another(c)]
    return [*serving_containers(pod_spec), *within]


def _within_another(container: Mapping[str, Any]) -> bool:
    name = str(container.get("image", "")).partition("@")[0].rpartition("/")[2].partition(":")[0]
    return name in _IMAGES_WITH_VLLM


def _own_server(container: Mapping[str, Any]) -> dict[str, Any]:
    tokens = [str(t) for key in ("command", "args") for t in container.get(key) or ()]
    other = next((module for module in _OTHER_SERVERS if module in tokens), None)
    if other is not None:
        raise TemplateError(
            "spec.container",
            f"container {container.get('name')!r} runs {other}, which has vLLM in it but serves "
            "neither its API nor its metrics: upgrade it by what deploys it",
        )
    return dict(container)


def metrics_port(container: Mapping[str, Any]) -> int:
    """Tell on which port the vLLM server of a container listens.

    `--port` where it is written out or stands in the container's environment; else the declared
    port named `metrics` or `http`; else the first declared port; else 8000.
    """
    port = _port_flag(container)
    if port is not None:
        return port
    declared = [
        p
        for p in container.get("ports") or ()
        if p.get("protocol", "TCP") == "TCP" and p.get("containerPort")
    ]
    for name in _PORT_NAMES:
        for entry in declared:
            if entry.get("name") == name:
                return int(entry["containerPort"])
    return int(declared[0]["containerPort"]) if declared else DEFAULT_PORT


def scheme(container: Mapping[str, Any]) -> str:
    """Tell whether the vLLM server of a container speaks `http` or `https`.

    By its certificate's flags (uvicorn serves TLS with any of them), or by what its own probes use.
    """
    options = read_options(container, known.versions()[-1])
    if any(options.is_on(flag) for flag in ("ssl-keyfile", "ssl-certfile")):
        return "https"
    probes = (container.get(f"{kind}Probe") or {} for kind in ("readiness", "startup", "liveness"))
    schemes = [(probe.get("httpGet") or {}).get("scheme") for probe in probes]
    return "https" if "HTTPS" in schemes else "http"


def _by_command(container: Mapping[str, Any]) -> bool:
    tokens = words(container)
    if tokens is None:
        # A script: it cannot be edited, but it can be recognised.
        text = " ".join(str(t) for k in ("command", "args") for t in container.get(k) or ())
        return is_vllm_command(text.split())
    return is_vllm_command(tokens)


def _by_image(container: Mapping[str, Any]) -> bool:
    """Whether `vllm` is a word of the image's repository, as in vllm/vllm-openai.

    What stands beside vLLM and serves no model, by a word of its own name, is none.
    """
    image = str(container.get("image", "")).partition("@")[0]
    repository = image.rpartition(":")[0] if ":" in image.rpartition("/")[2] else image
    name = repository.rpartition("/")[2]
    return "vllm" in _IMAGE_WORD.split(repository) and _BESIDE.isdisjoint(_IMAGE_WORD.split(name))


def _port_flag(container: Mapping[str, Any]) -> int | None:
    # Every version has this flag.
    value = read_options(container, known.versions()[-1]).text("port") or ""
    return int(value) if value.isdecimal() and len(value) < 6 and 0 < int(value) < 65536 else None

"""Which cluster, user and namespace a kubeconfig means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubernetes.aio import client as official
from kubernetes.aio import config as official_config
from kubernetes.aio.config.config_exception import ConfigException
from yaml import YAMLError

if TYPE_CHECKING:
    from pathlib import Path

# The official client trips over a file of another form: it looks for keys where there are none.
_ANOTHER_FORM = (AttributeError, KeyError, TypeError, ValueError)
_UNUSABLE = (ConfigException, YAMLError, OSError, *_ANOTHER_FORM)


class KubeconfigError(Exception):
    """There is no usable kubeconfig; the text says what is wrong with it."""


async def load(path: Path | str | None, context: str | None) -> official.Configuration:
    """Read how to connect; without a path as kubectl would find it.

    Raises:
        KubeconfigError: The file or the context is not there, or cannot be used.
    """
    configuration = official.Configuration()
    try:
        await official_config.load_kube_config(
            config_file=None if path is None else str(path),
            context=context,
            client_configuration=configuration,
        )
    except _UNUSABLE as error:
        raise KubeconfigError(_words(error)) from error
    return configuration


def default_namespace(path: Path | str | None, context: str | None) -> str:
    """Give the namespace of a context, the current one if none is named; `default` without one.

    Raises:
        KubeconfigError: The file or the context is not there.
    """
    try:
        contexts, active = official_config.list_kube_config_contexts(
            config_file=None if path is None else str(path)
        )
    except _UNUSABLE as error:
        raise KubeconfigError(_words(error)) from error
    chosen = active
    if context is not None:
        chosen = next((c for c in contexts if c["name"] == context), None)
    if chosen is None:
        raise KubeconfigError(f"the kubeconfig has no context {context!r}")
    return str(chosen["context"].get("namespace") or "default")


def _words(error: Exception) -> str:
    why = " ".join(str(error).split())
    if isinstance(error, _ANOTHER_FORM):
        why = f"it is not of the form of a kubeconfig ({why})"
    return f"the kubeconfig cannot be used: {why}"

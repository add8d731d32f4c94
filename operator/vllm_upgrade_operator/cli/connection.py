"""Which cluster a command talks to, as kubectl's own flags say it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from vllm_upgrade_operator.cli.exits import CommandError, Exit
from vllm_upgrade_operator.cluster.client import Client
from vllm_upgrade_operator.cluster.kubeconfig import KubeconfigError, default_namespace

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

    from vllm_upgrade_operator.cluster.client import ApiError


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say which cluster is meant."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="kubeconfig to use; without it $KUBECONFIG, or else ~/.kube/config",
    )
    group.add_argument(
        "--context", metavar="NAME", help="context of the kubeconfig; without it the current one"
    )


@asynccontextmanager
async def connected(options: argparse.Namespace) -> AsyncIterator[Client]:
    """Give a client for the cluster that is meant.

    Raises:
        CommandError: The kubeconfig cannot be used.
    """
    try:
        client = await Client.from_kubeconfig(options.kubeconfig, options.context)
    except KubeconfigError as error:
        raise _unusable(error) from error
    async with client:
        yield client


def namespace_of(options: argparse.Namespace) -> str:
    """Give the namespace that is meant: the flag's, or else the context's, or else `default`.

    Raises:
        CommandError: The kubeconfig cannot be used.
    """
    if options.namespace is not None:
        return str(options.namespace)
    try:
        return default_namespace(options.kubeconfig, options.context)
    except KubeconfigError as error:
        raise _unusable(error) from error


def unanswered(error: ApiError) -> CommandError:
    """Say what to do about an API server that does not answer, or refuses."""
    if error.status == 0:
        hint = "see with `kubectl cluster-info` whether the cluster can be reached"
        return CommandError(f"cannot reach the API server: {error.message}; {hint}", Exit.UNKNOWN)
    if error.status == 401:
        return CommandError(
            f"the API server does not know you: {error.message}; log in again, or name another "
            "user by --context",
            Exit.UNKNOWN,
        )
    return CommandError(f"the API server answered: {error}", Exit.UNKNOWN)


def _unusable(error: KubeconfigError) -> CommandError:
    return CommandError(
        f"{error}; name a kubeconfig by --kubeconfig or $KUBECONFIG, and one of its contexts by "
        "--context"
    )

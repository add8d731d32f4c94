"""Requests as a ServiceAccount makes them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kubernetes.aio import client as official
from kubernetes.aio import config as official_config

from vllm_upgrade_operator.cluster.client import Client

if TYPE_CHECKING:
    from collections.abc import Mapping


async def as_account(
    admin: Client, namespace: str, name: str, bound_to: Mapping[str, str] | None = None
) -> Client:
    """Connect with a token of a ServiceAccount, bound to a pod where one is given."""
    spec: dict[str, Any] = {"expirationSeconds": 600}
    if bound_to is not None:
        spec["boundObjectRef"] = dict(bound_to)
    answer = await admin.create(
        f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", {"spec": spec}
    )
    known = official.Configuration()
    await official_config.load_kube_config(
        config_file=os.environ["KUBECONFIG"], client_configuration=known
    )
    mine = official.Configuration(host=known.host)
    mine.ssl_ca_cert = known.ssl_ca_cert
    mine.api_key = {"BearerToken": "Bearer " + answer["status"]["token"]}
    return Client(mine)

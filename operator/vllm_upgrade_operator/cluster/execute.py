"""Do what a decision asks for. Every action can be done again without harm."""

from __future__ import annotations

from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.api.v1alpha1 import GROUP, KIND, VERSION
from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import JSON_PATCH, MERGE, ApiError
from vllm_upgrade_operator.upgrade import decision as d
from vllm_upgrade_operator.upgrade.names import (
    ADMITTED_AT,
    ATTEMPT,
    CANARY,
    FIELD_MANAGER,
    ROLE,
    ROLE_CANARY,
    UPGRADE,
    candidate_name,
    canary_name,
    known_good_name,
)
from vllm_upgrade_operator.upgrade.ownership import restored
from vllm_upgrade_operator.upgrade.times import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.upgrade.observation import Observation

_NOT_FOUND, _CONFLICT = 404, 409

# The API server does not let a Deployment wait for ever; the upgrade has deadlines of its own.
_PROGRESS_DEADLINE_SECONDS = 7 * 24 * 3600


class Executor:
    """Executes actions for one upgrade."""

    def __init__(self, client: Client, o: Observation) -> None:
        self._client = client
        self._namespace = o.namespace
        self._name = o.name
        self._uid = o.uid
        self._target = o.spec.target_ref.name

    async def run(self, action: d.Action) -> None:
        """Execute one action. Raises `ApiError`."""
        await self._do(action)

    @singledispatchmethod
    async def _do(self, action: object) -> None:
        raise TypeError(f"unknown action {type(action).__name__}")

    @_do.register
    async def _(self, action: d.StoreKnownGood) -> None:
        owner = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": self._target,
            "uid": action.target_uid,
        }
        await self._create_revision(known_good_name(self._name), action.data, owner)

    @_do.register
    async def _(self, action: d.StoreCandidate) -> None:
        name = candidate_name(self._name)
        path = paths.apps(self._namespace, "controllerrevisions", name)
        # The data of a ControllerRevision cannot be changed, so another attempt needs a new one.
        await self._client.delete(path)
        data = {"attempt": action.attempt, "template": action.template}
        await self._create_revision(name, data, self._owner())

    @_do.register
    async def _(self, _: d.DropRevisions) -> None:
        for name in (candidate_name(self._name), known_good_name(self._name)):
            await self._client.delete(paths.apps(self._namespace, "controllerrevisions", name))

    @_do.register
    async def _(self, action: d.EnsureCanary) -> None:
        path = paths.apps(self._namespace, "deployments", canary_name(self._target))
        try:
            await self._client.patch(
                path,
                [
                    {"op": "test", "path": f"/spec/selector/matchLabels/{_pointer(CANARY)}",
                     "value": self._uid},
                    {"op": "replace", "path": "/spec/replicas", "value": action.replicas},
                ],
                JSON_PATCH,
                fieldManager=FIELD_MANAGER,
            )
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            await self._client.create(
                paths.apps(self._namespace, "deployments"),
                self._canary(action),
                fieldManager=FIELD_MANAGER,
            )

    @_do.register
    async def _(self, _: d.DeleteCanary) -> None:
        path = paths.apps(self._namespace, "deployments", canary_name(self._target))
        await self._client.delete(path, propagationPolicy="Background")

    @_do.register
    async def _(self, action: d.Admit) -> None:
        annotations = {ADMITTED_AT: rfc3339(action.at)}
        await self._patch_pod(action.pod, action.pod_uid, action.labels, annotations)

    @_do.register
    async def _(self, action: d.Withdraw) -> None:
        gone = dict.fromkeys(action.keys)
        await self._patch_pod(action.pod, action.pod_uid, gone, {})

    @_do.register
    async def _(self, action: d.LabelPod) -> None:
        await self._patch_pod(action.pod, action.pod_uid, action.labels, action.annotations)

    @_do.register
    async def _(self, action: d.ReplaceTemplate) -> None:
        await self._client.patch(
            paths.apps(self._namespace, "deployments", self._target),
            [
                {"op": "test", "path": "/spec/template", "value": action.expected},
                {"op": "replace", "path": "/spec/template", "value": action.replacement},
            ],
            JSON_PATCH,
            fieldManager=FIELD_MANAGER,
        )

    @_do.register
    async def _(self, action: d.RestoreOwnership) -> None:
        path = paths.apps(self._namespace, "deployments", self._target)
        target = await self._client.get(path)
        fields = restored(action.recorded, target)
        if fields == target["metadata"].get("managedFields"):
            return
        version = target["metadata"]["resourceVersion"]
        await self._client.patch(
            path,
            [
                {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                {"op": "replace", "path": "/metadata/managedFields", "value": fields},
            ],
            JSON_PATCH,
            fieldManager=FIELD_MANAGER,
        )

    async def _patch_pod(
        self,
        name: str,
        uid: str,
        labels: Mapping[str, str | None],
        annotations: Mapping[str, str],
    ) -> None:
        """Change a pod's labels and annotations, but only of the very pod that was seen."""
        body = {"metadata": {"uid": uid, "labels": labels, "annotations": annotations}}
        try:
            await self._client.patch(
                paths.core(self._namespace, "pods", name), body, MERGE, fieldManager=FIELD_MANAGER
            )
        except ApiError as error:
            # Gone, or another pod of that name: there is nothing to label any more.
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise

    async def _create_revision(
        self, name: str, data: Mapping[str, Any], owner: Mapping[str, Any]
    ) -> None:
        try:
            await self._client.create(
                paths.apps(self._namespace, "controllerrevisions"),
                {
                    "metadata": {
                        "name": name,
                        "labels": {UPGRADE: self._uid},
                        "ownerReferences": [owner],
                    },
                    "revision": 1,
                    "data": data,
                },
                fieldManager=FIELD_MANAGER,
            )
        except ApiError as error:
            if error.status != _CONFLICT:
                raise

    def _owner(self) -> dict[str, Any]:
        return {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "name": self._name,
            "uid": self._uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def _canary(self, action: d.EnsureCanary) -> dict[str, Any]:
        template = dict(action.template)
        metadata = dict(template.get("metadata") or {})
        ours = {CANARY: self._uid, ROLE: ROLE_CANARY}
        metadata["labels"] = {**(metadata.get("labels") or {}), **ours}
        template["metadata"] = metadata
        return {
            "metadata": {
                "name": canary_name(self._target),
                "labels": {CANARY: self._uid},
                "annotations": {ATTEMPT: action.attempt},
                "ownerReferences": [self._owner()],
            },
            "spec": {
                "replicas": action.replicas,
                "selector": {"matchLabels": {CANARY: self._uid}},
                "strategy": {"type": "Recreate"},
                "progressDeadlineSeconds": _PROGRESS_DEADLINE_SECONDS,
                "revisionHistoryLimit": 0,
                "template": template,
            },
        }


def _pointer(key: str) -> str:
    """Escape a key for a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")

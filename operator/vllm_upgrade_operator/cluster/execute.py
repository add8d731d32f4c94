"""Doing what a decision asks for. Each action is idempotent: it says what should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.canary import canary_manifest
from vllm_upgrade_operator.cluster.client import JSON_PATCH, ApiError
from vllm_upgrade_operator.cluster.outdated import OutdatedError
from vllm_upgrade_operator.cluster.revisions import Revisions
from vllm_upgrade_operator.upgrade import names
from vllm_upgrade_operator.upgrade.decision import (
    Admit,
    DeleteCanary,
    DropOrphan,
    DropRevisions,
    EnsureCanary,
    Inherit,
    LabelPod,
    Release,
    ReplaceTemplate,
    RestoreOwnership,
    StoreCandidate,
    StoreKnownGood,
    Withdraw,
)
from vllm_upgrade_operator.upgrade.ownership import restored
from vllm_upgrade_operator.upgrade.times import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.upgrade.decision import Action

_OWNERSHIP_ATTEMPTS = 5

_WRITER = {"fieldManager": names.FIELD_MANAGER}


class Executor:
    """Executes the actions of one upgrade."""

    def __init__(self, client: Client, upgrade: Mapping[str, Any]) -> None:
        self._client = client
        self._upgrade = upgrade
        self._namespace: str = upgrade["metadata"]["namespace"]
        self._name: str = upgrade["metadata"]["name"]
        self._uid: str = upgrade["metadata"]["uid"]
        self._target: str = upgrade["spec"]["targetRef"]["name"]
        self._revisions = Revisions(client, upgrade)

    async def execute(self, action: Action) -> None:
        """Do one action.

        Raises:
            ApiError: The API server refused it or did not answer.
            OutdatedError: What the action is about has changed since it was decided.
        """
        match action:
            case StoreKnownGood() | StoreCandidate() | Inherit() | DropRevisions() | DropOrphan():
                await self._revisions.execute(action)
            case EnsureCanary():
                await self._ensure_canary(action)
            case DeleteCanary():
                await self._delete_canary(action)
            case Admit():
                annotations = {names.ADMITTED_AT: rfc3339(action.at)}
                await self._label(action.pod, action.pod_uid, action.labels, annotations)
            case Withdraw():
                gone = dict.fromkeys(action.keys)
                await self._label(action.pod, action.pod_uid, gone, {names.ADMITTED_AT: None})
            case Release():
                gone = dict.fromkeys(action.keys)
                released = {
                    names.ADMITTED_AT: None,
                    names.RELEASED_AT: rfc3339(action.at),
                    names.POD_DELETION_COST: "-1",
                }
                await self._label(action.pod, action.pod_uid, gone, released)
            case LabelPod():
                await self._label(action.pod, action.pod_uid, action.labels, action.annotations)
            case ReplaceTemplate():
                await self._replace_template(action)
            case RestoreOwnership():
                await self._restore_ownership(action)

    async def _ensure_canary(self, action: EnsureCanary) -> None:
        name = names.canary_name(self._target)
        path = paths.deployment(self._namespace, name)
        present = await self._client.find(path)
        if present is None:
            body = canary_manifest(self._upgrade, self._target, action)
            await self._client.create(paths.deployments(self._namespace), body, **_WRITER)
            return
        metadata = present["metadata"]
        if (metadata.get("labels") or {}).get(names.CANARY) != self._uid:
            raise ApiError(
                409,
                "AlreadyExists",
                f"Deployment {name} exists and is not the canary of this upgrade: rename or "
                "delete it",
            )
        attempt = (metadata.get("annotations") or {}).get(names.ATTEMPT)
        if "deletionTimestamp" in metadata or attempt != action.attempt:
            raise OutdatedError(f"Deployment {name} is of attempt {attempt} or being deleted")
        if present["spec"]["replicas"] != action.replicas:
            await self._client.patch(
                path,
                {"metadata": {"uid": metadata["uid"]}, "spec": {"replicas": action.replicas}},
                **_WRITER,
            )

    async def _delete_canary(self, action: DeleteCanary) -> None:
        path = paths.deployment(self._namespace, names.canary_name(self._target))
        present = await self._client.find(path)
        if present is None:
            return
        metadata = present["metadata"]
        if (metadata.get("labels") or {}).get(names.CANARY) != self._uid:
            return
        # In the foreground: as long as a pod of it is there, the Deployment is too. Deleting it
        # again in the background takes that hold off it (tried).
        await self._client.delete(
            path,
            {
                "propagationPolicy": "Background" if action.without_pods else "Foreground",
                "preconditions": {"uid": metadata["uid"]},
            },
        )

    async def _label(
        self,
        pod: str,
        uid: str,
        labels: Mapping[str, str | None],
        annotations: Mapping[str, str | None],
    ) -> None:
        """Patch a pod in one call, unless it is gone or another one has its name."""
        body = {"metadata": {"uid": uid, "labels": dict(labels), "annotations": dict(annotations)}}
        try:
            await self._client.patch(paths.pod(self._namespace, pod), body, **_WRITER)
        except ApiError as error:
            # Another UID is answered with 422 and the field's name (tried on 1.37).
            other = error.status == 422 and "metadata.uid" in error.message
            if error.status == 404 or other:
                return
            raise

    async def _replace_template(self, action: ReplaceTemplate) -> None:
        path = paths.deployment(self._namespace, self._target)
        try:
            await self._client.patch(
                path,
                [
                    {"op": "test", "path": "/spec/template", "value": action.expected},
                    {"op": "replace", "path": "/spec/template", "value": action.replacement},
                ],
                JSON_PATCH,
                **_WRITER,
            )
        except ApiError as error:
            # A failed `test` and a refused template are both a 422: only a look can tell.
            if error.status == 422:
                present = await self._client.get(path)
                if present["spec"]["template"] != action.expected:
                    raise OutdatedError(
                        f"the pod template of {self._target} is no longer the one that was read"
                    ) from error
            raise

    async def _restore_ownership(self, action: RestoreOwnership) -> None:
        path = paths.deployment(self._namespace, self._target)
        for _ in range(_OWNERSHIP_ATTEMPTS):
            present = await self._client.find(path)
            if present is None:
                return
            wanted = restored(action.recorded, present, names.FIELD_MANAGER)
            if wanted == present["metadata"].get("managedFields"):
                return
            version = present["metadata"]["resourceVersion"]
            try:
                await self._client.patch(
                    path,
                    [
                        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                        {"op": "replace", "path": "/metadata/managedFields", "value": wanted},
                    ],
                    JSON_PATCH,
                    **_WRITER,
                )
            except ApiError as error:
                # Controllers write the Deployment's status at any time.
                if error.status not in (409, 422):
                    raise
            else:
                return
        raise OutdatedError(f"{self._target} is written too often to put its managedFields back")

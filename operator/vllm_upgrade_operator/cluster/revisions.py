"""The ControllerRevisions that hold known-good and candidate: kept, taken over, thrown away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.outdated import OutdatedError
from vllm_upgrade_operator.upgrade import names
from vllm_upgrade_operator.upgrade.decision import (
    DropOrphan,
    DropRevisions,
    Inherit,
    StoreCandidate,
    StoreKnownGood,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vllm_upgrade_operator.cluster.client import Client

_WRITER = {"fieldManager": names.FIELD_MANAGER}

Action = StoreKnownGood | StoreCandidate | Inherit | DropRevisions | DropOrphan


class Revisions:
    """The revisions of one upgrade."""

    def __init__(self, client: Client, upgrade: Mapping[str, Any]) -> None:
        self._client = client
        self._namespace: str = upgrade["metadata"]["namespace"]
        self._name: str = upgrade["metadata"]["name"]
        self._uid: str = upgrade["metadata"]["uid"]
        self._target: str = upgrade["spec"]["targetRef"]["name"]

    async def execute(self, action: Action) -> None:
        """Do one action.

        Raises:
            ApiError: The API server refused it or did not answer.
            OutdatedError: What the action is about has changed since it was decided.
        """
        match action:
            case StoreKnownGood():
                await self._store_known_good(action)
            case StoreCandidate():
                await self._store_candidate(action)
            case Inherit():
                await self._inherit(action)
            case DropRevisions():
                own = (names.candidate_name(self._name), names.known_good_name(self._name))
                await self._drop(own)
            case DropOrphan():
                await self._drop(action.revisions)

    async def _store_known_good(self, action: StoreKnownGood) -> None:
        """Create it; one that is there already is the older truth and stays."""
        owner = self._target_reference(action.target_uid)
        body = self._revision(names.known_good_name(self._name), action.data, owner)
        try:
            await self._client.create(paths.revisions(self._namespace), body, **_WRITER)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            await self._own_revision(names.known_good_name(self._name))

    async def _inherit(self, action: Inherit) -> None:
        """Take over or copy the record, then delete the rest: it is never without a holder."""
        first, *others = action.revisions
        name = names.known_good_name(self._name)
        path = paths.revision(self._namespace, first)
        present = await self._client.find(path)
        if present is None:
            raise OutdatedError(f"ControllerRevision {first} is gone")
        marks = {
            "labels": {names.UPGRADE: self._uid},
            "annotations": {names.INHERITED_FROM: action.upgrade},
        }
        if first == name:
            body = {"metadata": {"uid": present["metadata"]["uid"], **marks}}
            await self._client.patch(path, body, **_WRITER)
        else:
            body = self._revision(name, present["data"], present["metadata"]["ownerReferences"][0])
            body["metadata"] |= marks
            try:
                await self._client.create(paths.revisions(self._namespace), body, **_WRITER)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                await self._own_revision(name)
            others.append(first)
        await self._drop(others)

    async def _drop(self, revisions: Iterable[str]) -> None:
        for name in revisions:
            await self._client.delete(paths.revision(self._namespace, name))

    async def _store_candidate(self, action: StoreCandidate) -> None:
        """A ControllerRevision's data cannot be changed: another attempt's is made anew."""
        name = names.candidate_name(self._name)
        data = {"attempt": action.attempt, "template": action.template}
        body = self._revision(name, data, self._target_reference(action.target_uid))
        try:
            await self._client.create(paths.revisions(self._namespace), body, **_WRITER)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            present = await self._own_revision(name)
            if present is not None and present["data"] != data:
                await self._client.delete(paths.revision(self._namespace, name))
                await self._client.create(paths.revisions(self._namespace), body, **_WRITER)

    async def _own_revision(self, name: str) -> dict[str, Any] | None:
        """Read a revision that is in the way; one that is not of this upgrade stays as it is."""
        present = await self._client.find(paths.revision(self._namespace, name))
        if present is None:
            return None
        if (present["metadata"].get("labels") or {}).get(names.UPGRADE) != self._uid:
            raise ApiError(
                409,
                "AlreadyExists",
                f"ControllerRevision {name} exists and is not of this upgrade: an earlier one of "
                "this name may have left another target half promoted. Compare the pod template "
                "in it with that of its owner, put right what differs, then delete it",
            )
        return present

    def _target_reference(self, uid: str) -> dict[str, Any]:
        """Make the target the owner: the record outlives an upgrade that is deleted by force."""
        return {"apiVersion": "apps/v1", "kind": "Deployment", "name": self._target, "uid": uid}

    def _revision(
        self, name: str, data: Mapping[str, Any], owner: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": name,
                "labels": {names.UPGRADE: self._uid},
                "ownerReferences": [dict(owner)],
            },
            "revision": 1,
            "data": dict(data),
        }

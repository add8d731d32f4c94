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
        if not await self._create_unless_there(body):
            await self._own_revision(names.known_good_name(self._name))

    async def _inherit(self, action: Inherit) -> None:
        """Make a copy that is this upgrade's, then delete the rest: it is never without a holder.

        A record cannot be given another label: the API server takes its data for changed as soon
        as another client has written it in JSON (tried on 1.37: 422, `data: Invalid value`).
        """
        first, *others = action.revisions
        name, spare = names.known_good_name(self._name), names.spare_name(self._name)
        present = await self._client.find(paths.revision(self._namespace, first))
        if present is None:
            raise OutdatedError(f"ControllerRevision {first} is gone")
        owner = present["metadata"]["ownerReferences"][0]
        if first == name:
            # Of an earlier upgrade of this name: it has to make room.
            kept = self._revision(spare, present["data"], owner)
            kept["metadata"]["labels"] = present["metadata"]["labels"]
            await self._create_unless_there(kept)
            uid = present["metadata"]["uid"]
            await self._client.delete(
                paths.revision(self._namespace, first), {"preconditions": {"uid": uid}}
            )
        body = self._revision(name, present["data"], owner)
        body["metadata"]["annotations"] = {names.INHERITED_FROM: action.upgrade}
        if not await self._create_unless_there(body):
            await self._own_revision(name)
        # A candidate alone is clearly of no use; a known-good alone would look like another case.
        await self._drop((spare if first == name else first, *others))

    async def _create_unless_there(self, body: Mapping[str, Any]) -> bool:
        """Create a revision; False where there is one of that name."""
        try:
            await self._client.create(paths.revisions(self._namespace), body, **_WRITER)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return False
        return True

    async def _drop(self, revisions: Iterable[str]) -> None:
        for name in revisions:
            await self._client.delete(paths.revision(self._namespace, name))

    async def _store_candidate(self, action: StoreCandidate) -> None:
        """A ControllerRevision's data cannot be changed: another attempt's is made anew."""
        name = names.candidate_name(self._name)
        data = {"attempt": action.attempt, "template": action.template}
        body = self._revision(name, data, self._target_reference(action.target_uid))
        if await self._create_unless_there(body):
            return
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

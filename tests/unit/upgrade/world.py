"""A cluster as plain values: takes a decision's actions, gives the next observation.

It knows just enough of Deployments to let the state machine run a whole upgrade without a clock
and without an API server. What a real cluster does is tested in tests/cluster.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeSpec, VLLMUpgradeStatus
from vllm_upgrade_operator.judge.counters import Delta, Histogram
from vllm_upgrade_operator.upgrade import decision as d
from vllm_upgrade_operator.upgrade.decide import decide, needs
from vllm_upgrade_operator.upgrade.names import (
    ADMITTED_AT,
    CANARY,
    POD_DELETION_COST,
    RELEASED_AT,
    ROLE,
)
from vllm_upgrade_operator.upgrade.observation import (
    Canary,
    Candidate,
    KnownGood,
    Observation,
    Orphan,
    Pod,
    Target,
)
from vllm_upgrade_operator.upgrade.scrapes import ScrapeProblem, ScrapeReason
from vllm_upgrade_operator.upgrade.surroundings import Node, Surroundings
from vllm_upgrade_operator.upgrade.times import rfc3339
from vllm_upgrade_operator.vllm.runner import Runner, RunnerEvidence

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.conflicts import Rival

OLD: dict[str, Any] = {
    "metadata": {"labels": {"app": "llm", "team": "a"}},
    "spec": {"containers": [{"name": "vllm", "image": "sim/vllm:0.28.0"}]},
}
NEW: dict[str, Any] = {
    "metadata": {"labels": {"app": "llm", "team": "a"}},
    "spec": {"containers": [{"name": "vllm", "image": "sim/vllm:0.29.0"}]},
}
KEYS = frozenset({"app"})

SPEC: dict[str, Any] = {
    "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"},
    "candidate": {"image": "sim/vllm:0.29.0", "version": "0.29.0"},
    "runner": {"expected": "V2", "onMismatch": "Halt"},
    "strategy": {
        "steps": [{"replicas": 1, "hold": "10s"}, {"percent": 50, "hold": "10s"}],
        "bake": "10s",
        "scheduleDeadline": "60s",
        "startDeadline": "60s",
        "haltTimeout": "100s",
    },
    "analysis": {
        "interval": "1s",
        "warmup": {"duration": "2s", "requests": 5},
        "minRequests": 50,
        "maxDuration": "60s",
        "checks": [{"name": "errors", "max": "1%"}],
    },
}

START = 1_800_000_000.0
V1 = RunnerEvidence(runner=Runner.V1, how="Starting to load model")
V2 = RunnerEvidence(runner=Runner.V2, how="Using V2 Model Runner")

ROOMY = Surroundings(
    requests={"pods": Decimal(1)},
    nodes=(Node(name="n1", labels={}, unfit=None, free={"pods": Decimal(100)}),),
    claims=(),
    budgets=(),
    references=(),
    stable_references=(),
)

_BOUNDS = (0.1, 0.25, 0.5, 1.0, float("inf"))


SCALE = 100.0
"""So many requests does one of a test stand for, so that a look is enough evidence of safety."""


def calm(requests: float = 10.0, errors: float = 0.0, **changes: Any) -> Delta:
    """Give one second of a healthy pod; requests and errors are in units of `SCALE`."""
    requests, errors = requests * SCALE, errors * SCALE
    fast = Histogram(bounds=_BOUNDS, counts=(requests,) * 5, total=requests * 0.05)
    values: dict[str, Any] = {
        "seconds": 1.0,
        "offered": requests,
        "rejected": 0.0,
        "rejections_approximate": False,
        "errors": errors,
        "client_errors": 0.0,
        "preemptions": 0.0,
        "finished": requests,
        "prompt_tokens": requests * 100,
        "generation_tokens": requests * 20,
        "running": 1.0 if requests else 0.0,
        "waiting": 0.0,
        "kv_usage": 0.2,
        "kv_capacity_tokens": 100_000.0,
        "draft_tokens": None,
        "accepted_tokens": None,
        "ttft": fast,
        "itl": fast,
        "e2e": fast,
        "models": ("m",),
    }
    return Delta(**{**values, **changes})


@dataclass
class World:
    """The cluster's state; tests change its fields to make things happen."""

    spec: dict[str, Any] = field(default_factory=lambda: copy.deepcopy(SPEC))
    now: float = START
    template: dict[str, Any] = field(default_factory=lambda: copy.deepcopy(OLD))
    replicas: int = 4
    pods: dict[str, Pod] = field(default_factory=dict)
    canary_replicas: int | None = None
    canary_attempt: str = ""
    canary_deleting: bool = False
    known_good: KnownGood | None = None
    candidate: Candidate | None = None
    orphan: Orphan | None = None
    conflict: Rival | None = None
    annotations: dict[str, str] = field(default_factory=dict)
    deleting: bool = False
    deleted_at: float = START
    generation: int = 1
    start_seconds: float = 3.0
    candidate_runner: RunnerEvidence | None = V2
    candidate_version: str = "0.29.0"
    candidate_digest: str = "sha256:new"
    candidate_delta: Delta | None = field(default_factory=calm)
    stable_delta: Delta | None = field(default_factory=calm)
    rolls_slowly: bool = False
    uid: str = "uid-up"
    target_uid: str | None = "uid-llm"
    """None: somebody deleted the target, and its pods went."""
    mute: frozenset[str] = frozenset()
    """Pods whose metrics cannot be read."""
    most_canary_pods: int = 1000
    """What a quota allows."""
    in_flight: float = 0.0
    digests: dict[str, str | None] = field(default_factory=dict)
    """Image digests of single pods that differ from those of their side."""
    pullable: bool = True
    tag_moved_to: str | None = None
    """The image that a pod of the old template gets from now on."""
    room: int = 1000
    """How many pods have a node."""
    canary_refusal: str | None = None
    """What the canary Deployment says of pods that cannot be created."""
    canary_held: bool = False
    """The canary's pods do not end when they are deleted: their node is lost."""
    candidate_failed: float = 0.0
    """Server errors of a candidate's pod since it started."""
    surroundings: Surroundings = field(default_factory=lambda: ROOMY)
    status: VLLMUpgradeStatus = field(default_factory=VLLMUpgradeStatus)
    log: list[tuple[str, str]] = field(default_factory=list)
    """Phase and action, in order."""
    notices: list[d.Notice] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    writes: int = 0
    """Writes to the API server so far: one for each action, and for each status that changed."""
    killed_after: int | None = None
    """The operator is killed right after so many writes, once."""
    killed_every: int | None = None
    """And this often, counted from each start."""
    _serial: int = 0

    def __post_init__(self) -> None:
        for _ in range(self.replicas):
            self._add("llm", "old", ready=True, labels={"app": "llm", "team": "a"})

    # What the tests use.

    def run(self, seconds: float) -> None:
        """Reconcile for so many seconds of simulated time."""
        end = self.now + seconds
        while self.now < end:
            self._step()

    def run_until(self, phase: str, limit: float = 600.0) -> None:
        """Reconcile until the phase is reached; fails after `limit` simulated seconds."""
        end = self.now + limit
        while self.status.phase != phase:
            assert self.now < end, f"{phase} not reached: {self.phases} {self.status.message}"
            self._step()

    def _step(self) -> None:
        requeue = self.reconcile()
        step = 1.0 if requeue is None else min(max(requeue, 0.0), 1.0)
        self.now += step or 0.01

    def reconcile(self) -> float | None:
        """Do one reconcile, as `cluster/reconcile.py` does."""
        self._kubernetes()
        want = needs(self.typed_spec, self.status, self.now)
        result = decide(self.observe(look=want.look), self.status, self.now)
        for action in result.actions:
            self.log.append((str(self.status.phase), type(action).__name__))
            self._apply(action)
            if self._killed():
                return 0.0
        if result.status.phase != self.status.phase:
            self.phases.append(str(result.status.phase))
        changed, self.status = result.status != self.status, result.status
        if changed and self._killed():
            return 0.0
        self.notices.extend(result.notices)
        return result.requeue_seconds

    def _killed(self) -> bool:
        self.writes += 1
        often = self.killed_every is not None and self.writes % self.killed_every == 0
        return often or self.writes == self.killed_after

    @property
    def typed_spec(self) -> VLLMUpgradeSpec:
        return VLLMUpgradeSpec.model_validate(self.spec)

    def of(self, owner: str) -> list[Pod]:
        """The pods of `llm` (the target) or `canary`."""
        return [p for p in self.pods.values() if p.name.startswith(owner + "-")]

    def change(self, name: str, **fields: Any) -> None:
        """Change a pod."""
        self.pods[name] = replace(self.pods[name], **fields)

    def observe(self, *, look: bool) -> Observation:
        canary = None
        if self.canary_replicas is not None or self.of("canary"):
            canary = Canary(
                replicas=self.canary_replicas or 0,
                pods=tuple(self._seen(p, look=look) for p in self.of("canary")),
                attempt=self.canary_attempt,
                deleting=self.canary_deleting or self.canary_replicas is None,
                gone=self.canary_replicas is None,
                refusal=self.canary_refusal,
            )
        targets = self._alive()
        hash_ = self._hash(self.template)
        updated = [p for p in targets if p.template_hash == hash_]
        ready = [p for p in targets if p.ready_at is not None]
        return Observation(
            name="up",
            namespace="serving",
            uid=self.uid,
            generation=self.generation,
            annotations=self.annotations,
            deleting=self.deleting,
            deleted_at=self.deleted_at if self.deleting else None,
            spec=self.typed_spec,
            spec_hash=str(hash(repr((self.spec["candidate"], self.spec["runner"]))) % 10**12),
            target=None
            if self.target_uid is None
            else Target(
                name="llm",
                uid=self.target_uid,
                resource_version="1",
                generation=1,
                observed_generation=1,
                replicas=self.replicas,
                total=len(targets),
                updated=len(updated),
                ready=len(ready),
                available=len(ready),
                template=self.template,
                strategy="RollingUpdate",
                managed_fields=({"manager": "vllm-upgrade-operator"},)
                if self.template != OLD
                else (),
                pods=tuple(self._seen(p, look=look) for p in self.of("llm")),
                template_hash=hash_,
                container="vllm",
            ),
            canary=canary,
            known_good=self.known_good,
            candidate=self.candidate,
            proposed=NEW,
            surroundings=self.surroundings,
            orphan=self.orphan if self.status.phase == "Preflight" else None,
            conflict=self.conflict,
            traffic_keys=KEYS,
            looked_at=self.now if look else None,
        )

    # What Kubernetes does.

    def _hash(self, template: dict[str, Any]) -> str:
        return {repr(OLD): "old", repr(NEW): "new"}.get(repr(template), "foreign")

    def _add(self, owner: str, hash_: str, *, ready: bool, labels: dict[str, str]) -> None:
        self._serial += 1
        name = f"{owner}-{hash_}-{self._serial}"
        fits = self._placed() < self.room
        if hash_ == "old" and self.tag_moved_to is not None:
            self.digests[name] = self.tag_moved_to
        _, pinned, digest = self.template["spec"]["containers"][0]["image"].partition("@")
        if owner == "llm" and pinned:
            self.digests[name] = digest
        self.pods[name] = Pod(
            name=name,
            uid=f"uid-{name}",
            labels=labels,
            annotations={},
            created_at=self.now,
            template_hash=hash_,
            terminating=False,
            scheduled_at=self.now if fits else None,
            unschedulable=None if fits else "0/2 nodes are available",
            ready_at=self.now if ready else None,
            unready_since=None if ready else self.now,
            started_at=self.now,
            restarts=0,
            waiting_reason=None,
            waiting_message=None,
            exit_code=None,
            exit_reason=None,
            digest="sha256:old",
            startup_seconds=0.0,
            pullable=self.pullable,
        )

    def _placed(self) -> int:
        return sum(p.scheduled_at is not None for p in self.pods.values())

    def _start_pods(self) -> None:
        for pod in list(self.pods.values()):
            if pod.scheduled_at is None and self._placed() < self.room:
                self.change(pod.name, scheduled_at=self.now, unschedulable=None)
            began = self.pods[pod.name].scheduled_at
            late = began is not None and self.now - began >= self.start_seconds
            failed = pod.exit_code is not None and not (pod.end and pod.end.may_heal)
            if pod.ready_at is None and late and not (failed or pod.ended or pod.terminating):
                self.change(pod.name, ready_at=self.now, unready_since=None)

    def _kubernetes(self) -> None:
        self._start_pods()
        if self.canary_deleting and self.canary_held:
            for pod in self.of("canary"):
                if not pod.terminating:
                    self.change(pod.name, terminating=True, gone_at=self.now + 30.0)
        elif self.canary_deleting:
            for pod in self.of("canary"):
                del self.pods[pod.name]
            self.canary_replicas, self.canary_deleting = None, False
        if self.canary_replicas is not None:
            self._shrink(self.canary_replicas)
        allowed = min(self.canary_replicas or 0, self.most_canary_pods)
        if self.canary_deleting:
            allowed = 0
        while len([p for p in self.of("canary") if not (p.ended or p.terminating)]) < allowed:
            self._add("canary", "canary", ready=False, labels={"team": "a", CANARY: self.uid})
        wanted = self._hash(self.template)
        old = [p for p in self._alive() if p.template_hash != wanted]
        old.sort(key=lambda p: p.ready_at is not None)
        young = [p for p in self._alive() if p.ready_at is None and p not in old]
        if old and not young and not self.rolls_slowly:
            new = [p for p in self._alive() if p.template_hash == wanted]
            if len(new) < self.replicas:
                self._add("llm", wanted, ready=False, labels={"app": "llm", "team": "a"})
            if len(new) > self.replicas - len(old):
                del self.pods[old[0].name]

    def _shrink(self, replicas: int) -> None:
        """Delete as the ReplicaSet controller does: the least ready, then the cheapest."""
        alive = [p for p in self.of("canary") if not (p.ended or p.terminating)]
        alive.sort(
            key=lambda p: (p.ready_at is not None, int(p.annotations.get(POD_DELETION_COST, "0")))
        )
        for pod in alive[: max(0, len(alive) - replicas)]:
            del self.pods[pod.name]

    def _alive(self) -> list[Pod]:
        """The target's pods that its ReplicaSets count."""
        return [p for p in self.of("llm") if not p.ended]

    def _seen(self, pod: Pod, *, look: bool) -> Pod:
        candidate = pod.name.startswith("canary-") or pod.template_hash == "new"
        delta = self.candidate_delta if candidate else self.stable_delta
        evidence = self.candidate_runner if candidate else V1
        in_traffic = "app" in pod.labels
        look, mute = look and pod.name not in self.mute, look and pod.name in self.mute
        return replace(
            pod,
            version=self.candidate_version if candidate else "0.28.0",
            runner=evidence if pod.ready_at is not None else None,
            digest=self.digests.get(pod.name, self.candidate_digest if candidate else "sha256:old"),
            delta=delta if look and in_traffic else None,
            offered=None if mute else (self.now - pod.created_at) * 10 if in_traffic else 0.0,
            failed=None if mute else self.candidate_failed if candidate else 0.0,
            in_flight=None if mute else self.in_flight,
            scrape_error=(
                ScrapeProblem(ScrapeReason.REFUSED, "10.0.0.1:8000/metrics: cannot connect")
                if mute
                else None
            ),
        )

    # What the executor does.

    def _apply(self, action: d.Action) -> None:  # noqa: PLR0912 - as many as there are actions
        match action:
            case d.StoreKnownGood(data=data, target_uid=uid):
                self.known_good = self.known_good or KnownGood(
                    name="up-known-good",
                    target_uid=uid,
                    template=copy.deepcopy(data["template"]),
                    template_hash=data["templateHash"],
                    replicas=data["replicas"],
                    digests=tuple(data["digests"]),
                    version=data["version"],
                    managed_fields=tuple(data["managedFields"]),
                    container=data["container"],
                    pullable=data["pullable"],
                )
            case d.StoreCandidate(attempt=attempt, template=template):
                self.candidate = Candidate(attempt=attempt, template=template)
            case d.Inherit(upgrade=upgrade):
                assert self.orphan is not None
                assert self.orphan.known_good is not None
                self.known_good = replace(self.orphan.known_good, inherited=upgrade)
                self.orphan = None
            case d.DropOrphan():
                self.orphan = None
            case d.DropRevisions():
                self.known_good = self.candidate = None
            case d.EnsureCanary(attempt=attempt, replicas=count):
                self.canary_replicas, self.canary_attempt = count, attempt
            case d.DeleteCanary(without_pods=at_once):
                self.canary_deleting = not at_once
                if at_once:
                    self.canary_replicas = None
            case d.Admit(pod=name, labels=labels, at=at):
                pod = self.pods[name]
                self.change(
                    name,
                    labels={**pod.labels, **labels},
                    annotations={**pod.annotations, ADMITTED_AT: rfc3339(at)},
                )
            case d.Withdraw(pod=name, keys=keys):
                kept = {k: v for k, v in self.pods[name].labels.items() if k not in keys}
                self.change(name, labels=kept)
            case d.Release(pod=name, keys=keys, at=at):
                pod = self.pods[name]
                kept = {k: v for k, v in pod.labels.items() if k not in keys}
                told = {**pod.annotations, RELEASED_AT: rfc3339(at), POD_DELETION_COST: "-1"}
                self.change(name, labels=kept, annotations=told)
            case d.LabelPod(pod=name, labels=labels, annotations=annotations):
                pod = self.pods[name]
                self.change(
                    name,
                    labels={**pod.labels, **labels},
                    annotations={**pod.annotations, **annotations},
                )
            case d.ReplaceTemplate(expected=expected, replacement=replacement):
                assert self.template == expected
                self.template = copy.deepcopy(dict(replacement))
            case d.RestoreOwnership():
                pass

    def role(self, name: str) -> str | None:
        return self.pods[name].labels.get(ROLE)

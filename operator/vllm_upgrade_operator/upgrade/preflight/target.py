"""Checks of the Deployment that is upgraded: they need no candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.preflight.answer import block, not_applicable, passed, warn
from vllm_upgrade_operator.upgrade.steps import impossible_steps

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.observation import Observation
    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Subject

# Field managers of controllers that apply again and again. Argo CD: common/common.go, Flux:
# kustomize-controller and helm-controller main.go.
_GITOPS = {
    "argocd-controller": "Argo CD",
    "argocd-application-controller": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
}


def exists(o: Observation) -> Answer:
    """There has to be a target."""
    name = o.spec.target_ref.name
    if o.target is None:
        return block(
            "TargetNotFound",
            f"there is no Deployment {name} in namespace {o.namespace}: create it, or "
            "make a VLLMUpgrade with the right spec.targetRef.name",
        )
    return passed(f"Deployment {name} is there")


def strategy(s: Subject) -> Answer:
    """Promotion rolls the target by its own strategy: one that stops all pods at once is none."""
    if s.target.strategy == "Recreate":
        return block(
            "StrategyRecreate",
            f"Deployment {s.target.name} has strategy Recreate: promotion would stop all its pods "
            "at once; set spec.strategy.type: RollingUpdate on it",
        )
    return passed(f"Deployment {s.target.name} rolls with strategy {s.target.strategy}")


def paused(s: Subject) -> Answer:
    """A paused Deployment rolls nothing."""
    if s.target.paused:
        return block(
            "TargetPaused",
            f"Deployment {s.target.name} has spec.paused true: promotion would wait for ever; "
            f"`kubectl -n {s.o.namespace} rollout resume deployment/{s.target.name}` first",
        )
    return passed(f"Deployment {s.target.name} is not paused")


def scaled(s: Subject) -> Answer:
    """There have to be stable pods to compare with."""
    if s.target.replicas == 0:
        return block(
            "TargetScaledToZero",
            f"Deployment {s.target.name} has spec.replicas 0: there are no stable pods to compare "
            "with; scale it up first",
        )
    return passed(f"Deployment {s.target.name} has {s.target.replicas} replicas")


def steps(s: Subject) -> Answer:
    """Steps must not descend, nor ask for more pods than the target has."""
    if s.target.replicas == 0:
        return not_applicable("there are no replicas to take a share of")
    refusal = impossible_steps(s.o.spec.strategy.steps, s.target)
    if refusal is not None:
        return block(refusal.reason, refusal.message)
    return passed(f"{len(s.o.spec.strategy.steps)} steps, which the replicas allow")


def owner(s: Subject) -> Answer:
    """What another controller makes, it puts back: a change of it does not stay."""
    if s.target.owner is not None:
        return block(
            "OwnedByController",
            f"Deployment {s.target.name} is controlled by {s.target.owner}, which puts back what "
            "anybody else changes: upgrade it there, or make a Deployment of your own",
        )
    return passed(f"no other controller owns {s.target.name}")


def gitops(s: Subject) -> Answer:
    """What is kept in Git is put back from there, unless it is changed there too."""
    found = sorted(
        {
            _GITOPS[entry["manager"]]
            for entry in s.target.managed_fields
            if entry["manager"] in _GITOPS
        }
    )
    if found:
        return warn(
            "ManagedByGitOps",
            f"{' and '.join(found)} manages fields of Deployment {s.target.name}: after promotion, "
            "and before it syncs, change the manifest there too, or it puts the old template back",
        )
    return passed(f"no GitOps controller is known to write {s.target.name}")

"""Paths of the API that the operator uses."""

from __future__ import annotations


def deployments(namespace: str) -> str:
    """Collection of Deployments."""
    return f"/apis/apps/v1/namespaces/{namespace}/deployments"


def deployment(namespace: str, name: str) -> str:
    """One Deployment."""
    return f"{deployments(namespace)}/{name}"


def replica_sets(namespace: str) -> str:
    """Collection of ReplicaSets."""
    return f"/apis/apps/v1/namespaces/{namespace}/replicasets"


def revisions(namespace: str) -> str:
    """Collection of ControllerRevisions."""
    return f"/apis/apps/v1/namespaces/{namespace}/controllerrevisions"


def revision(namespace: str, name: str) -> str:
    """One ControllerRevision."""
    return f"{revisions(namespace)}/{name}"


def pods(namespace: str) -> str:
    """Collection of pods."""
    return f"/api/v1/namespaces/{namespace}/pods"


def pod(namespace: str, name: str) -> str:
    """One pod."""
    return f"{pods(namespace)}/{name}"


def log(namespace: str, name: str) -> str:
    """The log of a pod."""
    return f"{pod(namespace, name)}/log"


def services(namespace: str) -> str:
    """Collection of Services."""
    return f"/api/v1/namespaces/{namespace}/services"


def inference_pools(namespace: str) -> str:
    """Collection of InferencePools."""
    return f"/apis/inference.networking.k8s.io/v1/namespaces/{namespace}/inferencepools"


def events(namespace: str) -> str:
    """Collection of Events."""
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


def upgrades(namespace: str) -> str:
    """Collection of VLLMUpgrades."""
    return f"/apis/vllmupgrade.dev/v1alpha1/namespaces/{namespace}/vllmupgrades"


def upgrade(namespace: str, name: str) -> str:
    """One VLLMUpgrade."""
    return f"{upgrades(namespace)}/{name}"


def nodes() -> str:
    """Collection of nodes."""
    return "/api/v1/nodes"


def all_pods() -> str:
    """Collection of the pods of all namespaces."""
    return "/api/v1/pods"


def volume_claim(namespace: str, name: str) -> str:
    """One PersistentVolumeClaim."""
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"


def disruption_budgets(namespace: str) -> str:
    """Collection of PodDisruptionBudgets."""
    return f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"


def config_map(namespace: str, name: str) -> str:
    """One ConfigMap."""
    return f"/api/v1/namespaces/{namespace}/configmaps/{name}"


def secret(namespace: str, name: str) -> str:
    """One Secret."""
    return f"/api/v1/namespaces/{namespace}/secrets/{name}"


def workloads(kind: str, namespace: str | None) -> str:
    """Collection of the workloads of a kind in a namespace, or in all of them."""
    group, plural = WORKLOADS[kind]
    return f"/apis/{group}{_within(namespace)}/{plural}"


def pods_in(namespace: str | None) -> str:
    """Collection of the pods of a namespace, or of all of them."""
    return f"/api/v1{_within(namespace)}/pods"


WORKLOADS = {
    "Deployment": ("apps/v1", "deployments"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io/v1", "leaderworkersets"),
}


def _within(namespace: str | None) -> str:
    return "" if namespace is None else f"/namespaces/{namespace}"

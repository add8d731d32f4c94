"""What the operator is allowed by its chart, and what it has used on a cluster, from the audit log.

Both should be the same: a permission that nothing uses is one that can only be abused, and one
that is used and not granted is a defect that shows when the operator needs it.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from localcluster import build, release
from localcluster.errors import ClusterError
from localcluster.paths import state_dir

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

_USER = f"system:serviceaccount:{release.NAMESPACE}:{release.NAME}"
# Tests make requests with the operator's ServiceAccount too; only its pods have tokens with this.
_POD = "authentication.kubernetes.io/pod-name"
_DECISION = "authorization.k8s.io/decision"
_REASON = "authorization.k8s.io/reason"
_HELM_SECONDS = 60


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """A verb on a resource, or on a subresource (`pods/log`), of an API group."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        """As `kubectl auth can-i` takes it."""
        name, slash, part = self.resource.partition("/")
        return f"{self.verb} {name}{'.' if self.group else ''}{self.group}{slash}{part}"


@dataclass(frozen=True, slots=True)
class Use:
    """What an audit log says of the operator.

    Attributes:
        allowed: What it was allowed by a role, and how often.
        forbidden: What it asked for and has no permission for, and how often.
    """

    allowed: Counter[Permission]
    forbidden: Counter[Permission]


def granted(objects: Iterable[Mapping[str, Any]]) -> frozenset[Permission]:
    """Give the permissions of all roles among the objects of a chart."""
    return frozenset(
        Permission(group, resource, verb)
        for found in objects
        if found["kind"] in ("Role", "ClusterRole")
        for rule in found["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


def used(lines: Iterable[str]) -> Use:
    """Read an audit log: one JSON object per line."""
    use = Use(Counter(), Counter())
    for line in lines:
        # Most lines are about others: they need not be parsed.
        if _USER not in line:
            continue
        event = json.loads(line)
        what = _permission(event)
        if what is None:
            continue
        notes = event.get("annotations") or {}
        if notes.get(_DECISION) == "forbid":
            use.forbidden[what] += 1
        elif notes.get(_DECISION) == "allow" and notes.get(_REASON, "").startswith("RBAC:"):
            use.allowed[what] += 1
    return use


def problems(may: frozenset[Permission], use: Use) -> list[str]:
    """Say, in one line each, where granted and used differ."""
    idle = [
        f"granted and never used: {p}. Take it out of the chart's role, or test what needs it"
        for p in sorted(may - use.allowed.keys())
    ]
    beyond = [
        f"used and not granted by the chart: {p} ({use.allowed[p]} times). Grant it there"
        for p in sorted(use.allowed.keys() - may)
    ]
    refused = [
        f"forbidden: {p} ({use.forbidden[p]} times). Grant it, or do not ask for it"
        for p in sorted(use.forbidden)
    ]
    return [*idle, *beyond, *refused]


def check() -> list[str]:
    """Give the problems of the chart and the cluster of this directory, by its log so far.

    Raises:
        ClusterError: There is no audit log, or the chart cannot be rendered.
    """
    return problems(granted(_rendered()), used(_log(state_dir() / "logs")))


def _permission(event: Mapping[str, Any]) -> Permission | None:
    """What an event asked for; None for other users, and for what is no resource (discovery)."""
    user, about = event["user"], event.get("objectRef") or {}
    if user["username"] != _USER or _POD not in (user.get("extra") or {}):
        return None
    if "resource" not in about:
        return None
    part = about.get("subresource")
    resource = f"{about['resource']}/{part}" if part else str(about["resource"])
    return Permission(str(about.get("apiGroup", "")), resource, str(event["verb"]))


def _log(directory: Path) -> Iterator[str]:
    """All lines, of files that were rotated away too (`audit-<time>.log`)."""
    files = sorted(directory.glob("audit*.log"))
    if not files:
        raise ClusterError(f"there is no audit log in {directory}: start a cluster by `make up`")
    for file in files:
        with file.open() as lines:
            yield from lines


def _rendered() -> list[Mapping[str, Any]]:
    command = [str(build.binaries() / "helm"), "template", release.NAME, str(release.CHART)]
    command += ["--namespace", release.NAMESPACE]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_HELM_SECONDS
    )
    if done.returncode != 0:
        raise ClusterError(f"helm could not render the chart: {done.stderr.strip()}")
    return [found for found in yaml.safe_load_all(done.stdout) if found]

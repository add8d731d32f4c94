"""The environment of a container, changed entry by entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.vllm.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def edit_environment(
    container: Mapping[str, Any],
    *,
    set_: Sequence[Mapping[str, Any]] = (),
    unset: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the container with variables set and unset.

    Args:
        container: Of a pod template.
        set_: Whole `EnvVar` objects, with `value` or `valueFrom`. One that is there is replaced
            where it stands (a later one may refer to it); a new one is appended.
        unset: Names to remove.

    Raises:
        TemplateError: A variable to be unset is not there.
    """
    entries = [dict(e) for e in container.get("env") or ()]
    names = [e.get("name") for e in entries]
    for name in unset:
        if name not in names:
            hint = " (it may come from envFrom)" if container.get("envFrom") else ""
            raise TemplateError(
                "spec.candidate.unsetEnv",
                f"variable {name!r} is not in the env of container {container.get('name')!r}{hint}",
            )
    entries = [e for e in entries if e.get("name") not in set(unset)]
    for variable in set_:
        there = [i for i, e in enumerate(entries) if e.get("name") == variable["name"]]
        if there:
            # Kubernetes lets the last of repeated entries count: one is left.
            entries[there[0]] = dict(variable)
            entries = [e for i, e in enumerate(entries) if i not in there[1:]]
        else:
            entries.append(dict(variable))
    edited = dict(container)
    if entries or "env" in container:
        edited["env"] = entries
    return edited

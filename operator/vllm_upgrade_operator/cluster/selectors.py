"""Which label keys route traffic to the target's pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def traffic_keys(
    labels: Mapping[str, str],
    match_labels: Mapping[str, str],
    selectors: Iterable[Mapping[str, str]],
    further: Iterable[str],
) -> frozenset[str]:
    """Give the keys by which anything selects the target's pods.

    Args:
        labels: Of the target's pod template.
        match_labels: Of the target itself.
        selectors: Of the Services and InferencePools in its namespace.
        further: Keys that the user names.
    """
    keys = {*match_labels, *further}
    for selector in selectors:
        if all(labels.get(key) == value for key, value in selector.items()):
            keys.update(selector)
    return frozenset(keys)


def service_selector(service: Mapping[str, Any]) -> Mapping[str, str]:
    """The selector of a Service; empty where its endpoints are managed by somebody else."""
    return service["spec"].get("selector") or {}


def pool_selector(pool: Mapping[str, Any]) -> Mapping[str, str]:
    """The selector of an InferencePool."""
    return (pool["spec"].get("selector") or {}).get("matchLabels") or {}

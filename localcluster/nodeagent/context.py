"""What all pods of an agent share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from localcluster.nodeagent.addresses import Addresses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import aiohttp

    from localcluster.nodeagent.events import Recorder
    from localcluster.nodeagent.processes import Ledger
    from vllm_upgrade_operator.cluster.client import Client


@dataclass(frozen=True)
class Context:
    """What all pods of an agent share.

    Attributes:
        client: The API server.
        events: Where events go.
        http: For HTTP probes and hooks; makes a new connection each time, as the kubelet does.
        ledger: Where running processes are recorded.
        image_maps: The image map files, read again for each container start.
        state_dir: The agent's directory.
        root: The root of the repository, `{root}` in image maps.
        services: The environment variables that tell containers where the API server is.
        allocatable: The resources of a node.
        backoff_base: The first restart delay that is not zero, in seconds.
        addresses: The pod addresses.
    """

    client: Client
    events: Recorder
    http: aiohttp.ClientSession
    ledger: Ledger
    image_maps: Sequence[Path]
    state_dir: Path
    root: Path
    services: Mapping[str, str]
    allocatable: Mapping[str, str]
    backoff_base: float
    addresses: Addresses = field(default_factory=Addresses)

    @property
    def memory_requests(self) -> Path:
        """Where containers ask to be ended for lack of memory."""
        return self.state_dir / "oom"

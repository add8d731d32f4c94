"""Images of one test alone, whose tags it moves: entries of the cluster's own image map."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from localcluster import tags


@dataclass(frozen=True)
class Tag:
    """An image reference that means what was last said of it. `localcluster/images.yaml` has how.

    Attributes:
        name: The reference without tag, which no other test may use.
    """

    name: str

    @property
    def reference(self) -> str:
        return f"{self.name}:1"

    def means(self, build: str, version: str, **env: str) -> str:
        """Have the tag mean a build of a simulated vLLM version; give the build's digest.

        What it meant before stays known by its digest, as in a registry.
        """
        digest = f"sha256:{hashlib.sha256(f'{self.name} {build}'.encode()).hexdigest()}"
        entry = {
            "command": ["{python}", "-m", "localcluster.sim", "--version", version],
            "env": {"PYTHONPATH": "{root}", "PYTHONUNBUFFERED": "1", **env},
            "digest": digest,
            "hostFlag": "--host",
            "vllm": True,
        }
        directory = Path(os.environ["LOCALCLUSTER_DIR"])
        for reference in (f"{self.name}:{build}", self.reference):
            tags.set_entry(directory, reference, entry)
        return digest

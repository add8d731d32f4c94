from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from localcluster import tags
from localcluster.errors import ClusterError
from localcluster.nodeagent.images import ImageMap

if TYPE_CHECKING:
    from pathlib import Path

OTHER = "sim/vllm:0.29.0-other"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("LOCALCLUSTER_IMAGES", raising=False)
    tags.path(tmp_path).write_text("{}\n")
    return tmp_path


def digest(directory: Path, reference: str) -> str:
    return ImageMap.load(tags.image_maps(directory)).find(reference).digest


def test_a_tag_is_made_and_moved(directory: Path) -> None:
    tags.move(directory, "sim/vllm:stable", "sim/vllm:0.29.0")
    before = digest(directory, "sim/vllm:stable")
    tags.move(directory, "sim/vllm:stable", OTHER)
    assert before == digest(directory, "sim/vllm:0.29.0")
    assert digest(directory, "sim/vllm:stable") == digest(directory, OTHER) != before
    # A shipped tag can be moved too.
    tags.move(directory, "sim/vllm:0.29.0", OTHER)
    assert digest(directory, "sim/vllm:0.29.0") == digest(directory, OTHER)


def test_many_move_their_tags_at_the_same_time(directory: Path) -> None:
    names = [f"sim/vllm:t{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: tags.move(directory, name, OTHER), names))
    assert {digest(directory, name) for name in names} == {digest(directory, OTHER)}


def test_what_cannot_be_is_refused_and_changes_nothing(directory: Path) -> None:
    with pytest.raises(ClusterError, match="sim/vllm:9 is in no image map of the cluster in"):
        tags.move(directory, "sim/vllm:stable", "sim/vllm:9")
    with pytest.raises(ClusterError, match=r"sim/x:1 cannot be written: .*must be a list"):
        tags.set_entry(directory, "sim/x:1", {"digest": "sha256:1"})
    assert tags.path(directory).read_text() == "{}\n"
    with pytest.raises(ClusterError, match="nowhere"):
        tags.move(directory / "nowhere", "sim/vllm:stable", OTHER)

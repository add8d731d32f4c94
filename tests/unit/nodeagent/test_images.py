from pathlib import Path

import pytest

from localcluster.nodeagent.images import (
    ImageMap,
    ImageMapError,
    InvalidImageNameError,
    PullError,
    Reference,
)

SHIPPED = Path(__file__).parents[3] / "localcluster" / "images.yaml"
ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64


def image_map(**digests: str) -> ImageMap:
    return ImageMap({name: {"command": [name], "digest": d} for name, d in digests.items()})


def test_the_shipped_map_has_the_simulated_versions_with_different_digests() -> None:
    images = ImageMap.load([SHIPPED])
    versions = ("0.28.0", "0.29.0", "0.29.0-other", "0.32.0", "0.33.0")
    found = [images.find(f"sim/vllm:{version}") for version in versions]
    assert len({image.digest for image in found}) == len(versions)
    assert all(image.host_flag == "--host" and image.is_vllm for image in found)
    assert found[2].command[-1] == "0.29.0"


def test_an_exact_name_wins_over_a_pattern_and_a_long_pattern_over_a_short_one() -> None:
    images = image_map(**{"a/*:*": ONE, "a/b:*": TWO, "a/b:1": ONE})
    assert images.find("a/b:1").command == ("a/b:1",)
    assert images.find("a/b:2").command == ("a/b:*",)
    assert images.find("a/c:1").command == ("a/*:*",)


def test_no_tag_means_latest_and_the_image_id_has_the_repository_and_digest() -> None:
    assert image_map(**{"a/b:latest": ONE}).find("a/b").image_id == f"a/b@{ONE}"


def test_a_digest_finds_its_entry_whatever_the_tag() -> None:
    images = image_map(**{"a/b:1": ONE, "a/b:2": TWO})
    assert images.find(f"a/b@{TWO}").command == ("a/b:2",)
    assert images.find(f"a/b:1@{TWO}").command == ("a/b:2",)
    with pytest.raises(PullError):
        images.find(f"other/b@{TWO}")


def test_an_unknown_image_is_not_found() -> None:
    with pytest.raises(PullError, match='failed to resolve reference "a/b:9": a/b:9'):
        image_map(**{"a/b:1": ONE}).find("a/b:9")


@pytest.mark.parametrize("name", ["", "a/UPPER:1", "a b", "a:b:c", "a/b:", "a@sha256:12"])
def test_a_malformed_name_is_invalid(name: str) -> None:
    with pytest.raises(InvalidImageNameError, match="invalid reference format"):
        Reference.parse(name)


def test_a_registry_with_a_port_is_part_of_the_name() -> None:
    assert Reference.parse("Host.example:5000/a/b:1") == Reference(
        "Host.example:5000/a/b", "1", None
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sim/missing:1", 'code = NotFound .* reference "sim/missing:1": sim/missing:1: not found'),
        (
            "sim/unreachable:1",
            r'reference "sim/unreachable:1": failed to do request: .*i/o timeout',
        ),
        ("sim/denied:1", "pull access denied"),
        ("sim/manifest-unknown:1", "manifest unknown"),
    ],
)
def test_the_shipped_map_has_registries_that_fail(name: str, said: str) -> None:
    with pytest.raises(PullError, match=said):
        ImageMap.load([SHIPPED]).find(name)


def test_an_exact_entry_heals_a_registry_that_fails(tmp_path: Path) -> None:
    own = tmp_path / "images.yaml"
    own.write_text(f"sim/unreachable:1: {{command: [x], digest: '{ONE}'}}")
    images = ImageMap.load([SHIPPED, own])
    assert images.find("sim/unreachable:1").digest == ONE
    with pytest.raises(PullError):
        images.find(f"sim/unreachable@{TWO}")


def test_a_later_file_wins(tmp_path: Path) -> None:
    first, second = tmp_path / "1.yaml", tmp_path / "2.yaml"
    first.write_text(f"a/b:1: {{command: [x], digest: '{ONE}'}}")
    second.write_text(f"a/b:1: {{command: [y], digest: '{TWO}'}}")
    assert ImageMap.load([first, second]).find("a/b:1").digest == TWO


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{digest: 'x'}", r"a/b:1\.command: None must be a list"),
        ("{command: [x], digest: 'sha256:1'}", r"a/b:1\.digest: 'sha256:1' must be sha256:"),
        (f"{{command: [x], digest: '{ONE}', entry: 1}}", "unknown field entry; known are"),
        (f"{{command: [x], digest: '{ONE}', vllm: 1}}", r"\.vllm: 1 must be true or false"),
        ("{pullError: no, command: [x]}", "pullError must be a text, and the only field"),
        ("7", "must be a mapping with command and digest"),
    ],
)
def test_a_bad_entry_is_named(tmp_path: Path, entry: str, message: str) -> None:
    path = tmp_path / "images.yaml"
    path.write_text(f"a/b:1: {entry}")
    with pytest.raises(ImageMapError, match=message):
        ImageMap.load([path])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImageMapError, match=r"nowhere\.yaml: cannot be read"):
        ImageMap.load([tmp_path / "nowhere.yaml"])

"""What an image reference says, and what it does not: a tag is a name, not a version."""

from __future__ import annotations

import re

_OFFICIAL = re.compile(r"(?:.+/)?vllm/vllm-openai(?:-cpu|-rocm)?")
# A release has three numbers; whoever publishes images moves shorter tags on to the newest one.
_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_COMMIT = re.compile(r"(?:.*-)?[0-9a-f]{7,64}")


def repository_of(image: str) -> str:
    """Give the repository, registry included: `docker.io/vllm/vllm-openai`."""
    name = image.partition("@")[0]
    return name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name


def tag_of(image: str) -> str | None:
    """Give the tag; None where there is none."""
    name = image.partition("@")[0]
    return name.rpartition(":")[2] if ":" in name.rpartition("/")[2] else None


def is_official(image: str) -> bool:
    """Whether it is vLLM's own release image, or a mirror of it: its tag is vLLM's version."""
    return _OFFICIAL.fullmatch(repository_of(image)) is not None


def moving(image: str) -> bool:
    """Whether another image may have this reference tomorrow.

    With a digest none can; a tag with three numbers or a commit in it is taken for a fixed one.
    """
    if "@" in image:
        return False
    tag = tag_of(image)
    return tag is None or not (_RELEASE.search(tag) or _COMMIT.fullmatch(tag))

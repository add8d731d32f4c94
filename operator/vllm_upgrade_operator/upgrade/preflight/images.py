"""Is it known which images run, and which would be run?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.health import is_ready
from vllm_upgrade_operator.upgrade.preflight.answer import (
    block,
    not_applicable,
    passed,
    unknown,
    warn,
)
from vllm_upgrade_operator.vllm.image import moving, tag_of
from vllm_upgrade_operator.vllm.versions import Version, VersionError, parse_version

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Subject, Trial


def one_stable_image(s: Subject) -> Answer:
    """Stable pods that run different images are no baseline, and no known-good either."""
    digests = sorted(
        {
            p.digest
            for p in s.target.pods
            if is_ready(p) and p.digest is not None and p.template_hash == s.target.template_hash
        }
    )
    if not digests:
        return unknown(
            "NoDigest", f"no image digest of a ready pod of {s.target.name} is known yet"
        )
    if len(digests) > 1:
        return block(
            "MixedDigests",
            f"the pods of {s.target.name} run {len(digests)} different images of one reference "
            f"({', '.join(d[:19] for d in digests[:4])}): its tag was moved; have all of them run "
            f"the same by `kubectl -n {s.o.namespace} rollout restart deployment/{s.target.name}`, "
            "or name the image by its digest",
        )
    return passed(f"all ready pods run {digests[0]}")


def fixed_images(t: Trial) -> Answer:
    """A tag that moves means another image tomorrow, for the candidate and for the way back."""
    said = []
    for side, server in (("candidate", t.candidate), ("stable", t.stable)):
        image = server.image
        if moving(image):
            said.append(f"the {side}'s image {image} may become another one at any time")
    if said:
        return warn(
            "MovingTag",
            f"{'; '.join(said)}: name a release, or a digest (@sha256:...); "
            "spec.rollback.pinDigest lets a rollback set the digest that was recorded",
        )
    return passed("both images are named by a release or a digest")


def tag_and_version(t: Trial) -> Answer:
    """What a tag says and what is expected or answered should be one version."""
    wanted = t.o.spec.candidate.version
    answered = sorted({p.version for p in t.target.pods if is_ready(p) and p.version is not None})
    if len(answered) > 1:
        return warn(
            "MixedVersions",
            f"the stable pods answer several versions ({', '.join(answered[:4])}): they do not run "
            "the same; see which differ by the label vllmupgrade.dev/version",
        )
    pairs = [
        ("candidate", t.candidate.image, wanted, "spec.candidate.version says"),
        ("stable", t.stable.image, answered[0] if answered else None, "its pods answer"),
    ]
    compared = []
    for side, image, version, how in pairs:
        tagged, known = _version(tag_of(image)), _version(version)
        if tagged is None or known is None:
            continue
        if tagged != known:
            return warn(
                "TagIsNotVersion",
                f"the tag of the {side}'s image {image} reads like another version than {how} "
                f"({version}): correct whichever is wrong; where the tag is not vLLM's version, "
                "this is as it should be",
            )
        compared.append(side)
    if not compared:
        return not_applicable("no tag reads like a version of vLLM, or no version is known for it")
    return passed(f"tag and version agree ({', '.join(compared)})")


def _version(text: str | None) -> Version | None:
    try:
        return None if text is None else parse_version(text)
    except VersionError:
        return None

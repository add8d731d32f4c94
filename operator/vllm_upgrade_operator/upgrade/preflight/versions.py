"""Does the candidate's version still have what it is told, and the architecture of the model?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.preflight.answer import (
    not_applicable,
    passed,
    unknown,
    warn,
)
from vllm_upgrade_operator.upgrade.preflight.certainty import block_if_certain, no_version
from vllm_upgrade_operator.vllm.facts import advice, known
from vllm_upgrade_operator.vllm.facts.obstacles import Kind
from vllm_upgrade_operator.vllm.facts.releases import facts_for

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Sides
    from vllm_upgrade_operator.vllm.versions import Version


def version_known(t: Sides) -> Answer:
    """What depends on the version can only be checked where it is known."""
    release = t.candidate.release
    if release.version is None:
        return unknown(
            "VersionUnknown",
            f"the version of vLLM in {t.candidate.image} is not known, and flags, variables, "
            "architecture and runner depend on it: say it in spec.candidate.version",
        )
    name = f"{release.version.major}.{release.version.minor}"
    newest = known.versions()[-1]
    if not known.nearest(release.version).certain:
        return warn(
            "VersionNotCovered",
            f"vLLM {name} is not among the versions that are known here (up to "
            f"{newest.major}.{newest.minor}): what follows is by the nearest one, so less certain; "
            "read its release notes",
        )
    if not release.certain:
        return warn(
            "VersionNotStated",
            f"that it is vLLM {name} is only what the tag of {t.candidate.image} says, so what "
            "depends on it warns and does not block: say it in spec.candidate.version",
        )
    return passed(f"vLLM {release.text}: {release.how}")


def architecture(t: Sides) -> Answer:
    """An architecture that the version does not have ends the start."""
    if t.candidate.release.version is None:
        return no_version(t, "whether it has the model's architecture")
    name = t.candidate.model.architecture
    if name is None:
        return unknown(
            "ArchitectureUnknown",
            "the model's architecture is not known: no stable pod's log says it (any more), or "
            "the candidate has another model",
        )
    obstacle = first_obstacle(t, Kind.ARCHITECTURE_REMOVED, Kind.ARCHITECTURE_UNKNOWN)
    return obstacle or passed(f"vLLM {t.candidate.release.text} has {name}")


def flags(t: Sides) -> Answer:
    """A flag that the version does not know ends the start with exit code 2."""
    if t.candidate.release.version is None:
        return no_version(t, "whether it knows all flags")
    obstacle = first_obstacle(t, Kind.FLAG_UNKNOWN, Kind.FLAG_REMOVED, Kind.FLAG_AMBIGUOUS)
    if obstacle is not None:
        return obstacle
    options = t.candidate.options
    if options.unread:
        return unknown("FlagsUnread", f"not all flags can be read: {'; '.join(options.unread)}")
    return passed(f"vLLM {t.candidate.release.text} knows all {len(options.given)} flags")


def speculative_decoding(t: Sides) -> Answer:
    """A method, or a way to verify drafts, that the version does not have ends the start."""
    setup = t.candidate.setup
    if setup is None:
        return no_version(t, "whether it can do what --speculative-config asks for")
    obstacle = first_obstacle(t, Kind.VERIFICATION_IMPOSSIBLE)
    if obstacle is not None:
        return obstacle
    settings = setup.speculative()
    if settings is None:
        return unknown("SpeculationUnread", "--speculative-config cannot be read here")
    if not settings:
        return not_applicable("no speculative decoding")
    return passed(f"vLLM {t.candidate.release.text} can do what --speculative-config asks for")


def deprecated_flags(t: Sides) -> Answer:
    """A deprecated flag works now, and will end a start one day."""
    version = t.candidate.release.version
    if version is None:
        return no_version(t, "whether its flags are deprecated")
    found = advice.deprecated_flags(version, t.candidate.options)
    if found:
        said = "; ".join(f"--{d.flag} (until {d.gone_in}; use {d.instead})" for d in found)
        return warn("DeprecatedFlag", f"deprecated in vLLM {t.candidate.release.text}: {said}")
    return passed("no flag is known to be deprecated")


def environment(t: Sides) -> Answer:
    """A variable that the version does not read any more has no effect, and nothing fails."""
    version = t.candidate.release.version
    if version is None:
        return no_version(t, "whether it reads all variables")
    unread = advice.unread_variables(version, t.candidate.options)
    gone = [v for v in unread if v.last is not None]
    if gone:
        said = ", ".join(f"{v.name} (the last with it is {_name(v.last)})" for v in gone)
        return warn(
            "RemovedVariable",
            f"vLLM {t.candidate.release.text} does not read {said}, so it would have no effect: "
            "take it out by spec.candidate.unsetEnv, and see the release notes for what replaces "
            "it",
        )
    if unread:
        # Of a plugin perhaps, or misspelt.
        names = ", ".join(v.name for v in unread)
        return warn(
            "UnknownVariable",
            f"no known version of vLLM reads {names}: correct the name, unless a plugin in the "
            "image reads it",
        )
    return passed("vLLM reads all variables that begin with VLLM_")


def first_obstacle(t: Sides, *kinds: Kind) -> Answer | None:
    """Give the first obstacle of these kinds, the others behind it; None where there is none."""
    found = [o for o in t.candidate.obstacles if o.kind in kinds]
    if not found:
        return None
    found.sort(key=lambda o: not o.certain)
    message = "; ".join(f"{o.sentence}: {o.advice}" for o in found[:5])
    certain = block_if_certain(t, str(found[0].kind), message)
    unsure = found[0].kind is Kind.ARCHITECTURE_UNKNOWN
    return unknown(str(found[0].kind), message) if unsure else certain


def base(t: Sides) -> Answer:
    """Another CUDA, torch or Triton is a change of its own, whatever vLLM's notes say."""
    before, after = t.stable.release.version, t.candidate.release.version
    if before is None or after is None:
        return no_version(t, "what it is built on")
    old, new = facts_for(before).base, facts_for(after).base
    changed = [
        f"{name} {was} to {now}"
        for name, was, now in (
            ("CUDA", cuda_of(t.stable.image, old.cuda), cuda_of(t.candidate.image, new.cuda)),
            ("torch", old.torch, new.torch),
            ("Triton", old.triton, new.triton),
        )
        if was != now
    ]
    if changed:
        return warn(
            "BaseChange",
            f"what vLLM is built on changes too: {', '.join(changed)}. Speed, memory and what the "
            "driver has to support may change with it",
        )
    return passed(f"both are built on torch {new.torch} and Triton {new.triton}")


def cuda_of(image: str, usual: str) -> str:
    """Give the CUDA version of an image: its tag's `-cu129`, or what the version usually has."""
    for part in image.partition("@")[0].rpartition(":")[2].split("-"):
        digits = part.removeprefix("cu")
        if part.startswith("cu") and digits.isdecimal() and len(digits) == 3:
            return f"{digits[:2]}.{digits[2]}"
    return usual


def _name(version: Version | None) -> str:
    return "" if version is None else f"{version.major}.{version.minor}"

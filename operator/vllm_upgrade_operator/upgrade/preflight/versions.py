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
from vllm_upgrade_operator.vllm.facts import known
from vllm_upgrade_operator.vllm.facts.releases import facts_for

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Trial

_PREFIX = "VLLM_"


def version_known(t: Trial) -> Answer:
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


def architecture(t: Trial) -> Answer:
    """An architecture that the version does not have ends the start."""
    version = t.candidate.release.version
    if version is None:
        return no_version(t, "whether it has the model's architecture")
    name = t.candidate.model.architecture
    if name is None:
        return unknown(
            "ArchitectureUnknown",
            "the model's architecture is not known: no stable pod's log says it (any more), or "
            "the candidate has another model",
        )
    nearest = known.nearest(version).version
    if name in known.architectures(nearest):
        return passed(f"vLLM {t.candidate.release.text} has {name}")
    before = t.stable.release.version
    if before is not None and name not in known.architectures(known.nearest(before).version):
        return unknown(
            "ArchitectureOfPlugin",
            f"{name} is in no registry of vLLM's own, so a plugin in the image brings it: see that "
            "the candidate's image has it too",
        )
    last = known.last_version_with(name)
    until = "" if last is None else f" (vLLM names {last} as the last version that has it)"
    return block_if_certain(
        t,
        "ArchitectureGone",
        f"vLLM {t.candidate.release.text} does not have {name} any more{until}: its pods would not "
        "start; stay on a version that has it, or serve another model",
    )


def flags(t: Trial) -> Answer:
    """A flag that the version does not know ends the start with exit code 2."""
    version = t.candidate.release.version
    if version is None:
        return no_version(t, "whether it knows all flags")
    options = t.candidate.options
    text = t.candidate.release.text
    if options.unknown:
        return block_if_certain(
            t,
            "UnknownFlag",
            f"vLLM {text} does not know {_dashed(options.unknown)}{_since(options.unknown)}: its "
            "pods would end with exit code 2; take it out by spec.candidate.unsetArgs",
        )
    if options.ambiguous:
        short, longer = next(iter(options.ambiguous.items()))
        return block_if_certain(
            t,
            "AmbiguousFlag",
            f"to vLLM {text} --{short} may be {' or '.join(f'--{f}' for f in longer[:4])}: its "
            "pods would end with exit code 2; write the flag out",
        )
    if options.unread:
        return unknown("FlagsUnread", f"not all flags can be read: {'; '.join(options.unread)}")
    return passed(f"vLLM {text} knows all {len(options.given)} flags")


def deprecated_flags(t: Trial) -> Answer:
    """A deprecated flag works now, and will end a start one day."""
    version = t.candidate.release.version
    if version is None:
        return no_version(t, "whether its flags are deprecated")
    found = [d for d in facts_for(version).deprecated if t.candidate.has(d.flag)]
    if found:
        said = "; ".join(f"--{d.flag} (until {d.gone_in}; use {d.instead})" for d in found)
        return warn("DeprecatedFlag", f"deprecated in vLLM {t.candidate.release.text}: {said}")
    return passed("no flag is known to be deprecated")


def environment(t: Trial) -> Answer:
    """A variable that the version does not read any more has no effect, and nothing says so."""
    version, before = t.candidate.release.version, t.stable.release.version
    if version is None:
        return no_version(t, "whether it reads all variables")
    reads = known.environment(known.nearest(version).version)
    ours = [n for n in t.candidate.options.environment if n.startswith(_PREFIX)]
    gone = [n for n in ours if n not in reads and _was_read(n, before)]
    if gone:
        return warn(
            "RemovedVariable",
            f"vLLM {t.candidate.release.text} does not read {', '.join(sorted(gone))} any more, so "
            "it would have no effect: take it out by spec.candidate.unsetEnv, and see the release "
            "notes for what replaces it",
        )
    if not ours:
        return not_applicable("no variable of vLLM's own is set")
    return passed(f"no variable is known to be removed of {', '.join(sorted(ours))}")


def base(t: Trial) -> Answer:
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


def _was_read(name: str, before: object) -> bool:
    """Whether an older version read a variable: the stable one, or any where that is not known."""
    versions = known.versions() if before is None else [v for v in known.versions() if v == before]
    return any(name in known.environment(v) for v in versions)


def _dashed(names: tuple[str, ...]) -> str:
    return ", ".join(n if n.startswith("-") else f"--{n}" for n in names)


def _since(names: tuple[str, ...]) -> str:
    """Say which versions do know flags, where any does."""
    said = []
    for name in names:
        having = [v for v in known.versions() if name in known.flags(v)]
        if having:
            first, last = having[0], having[-1]
            said.append(
                f"--{name} is in {first.major}.{first.minor} to {last.major}.{last.minor} only"
            )
    return f" ({'; '.join(said)})" if said else ""

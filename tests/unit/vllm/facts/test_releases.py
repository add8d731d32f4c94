from __future__ import annotations

import pytest

from vllm_upgrade_operator.vllm.facts import known
from vllm_upgrade_operator.vllm.facts.known import Takes, Trait
from vllm_upgrade_operator.vllm.facts.releases import facts_for
from vllm_upgrade_operator.vllm.versions import AdmissionControl, Version


@pytest.mark.parametrize(
    ("minor", "admission", "says"),
    [
        (28, AdmissionControl.NONE, "no limit"),
        (29, AdmissionControl.APPROXIMATE, "503, counted only among the 5xx"),
        (30, AdmissionControl.APPROXIMATE, "503"),
        (31, AdmissionControl.APPROXIMATE, "503"),
        (32, AdmissionControl.COUNTER, "vllm:admission_rejections_total"),
        (33, AdmissionControl.COUNTER, "by reason"),
    ],
)
def test_admission_control(minor: int, admission: AdmissionControl, says: str) -> None:
    found = facts_for(Version(0, minor))
    assert (found.version, found.certain) == (Version(0, minor), True)
    assert found.admission is admission
    assert says in found.rejection
    flags = known.flags(found.version)
    assert all((flag in flags) is (minor >= 29) for flag in ("max-num-queued-reqs",))
    assert all(flag in flags for flag in found.admission_flags)
    assert bool(found.admission_flags) is (minor >= 29)


def test_what_a_release_is_built_on() -> None:
    bases = {minor: facts_for(Version(0, minor)).base for minor in range(28, 34)}
    assert bases[28] == bases[32]
    assert (bases[28].torch, bases[28].triton) == ("2.13.0", "3.7.1")
    assert (bases[33].torch, bases[33].triton) == ("2.14.0", "3.8")
    assert {base.cuda for base in bases.values()} == {"13.0"}


def test_metrics_that_came() -> None:
    assert "vllm:admission_rejections" in facts_for(Version(0, 32)).new_metrics
    assert "vllm:request_num_preemptions" in facts_for(Version(0, 30)).new_metrics
    assert facts_for(Version(0, 29)).new_metrics == frozenset()


def test_what_is_deprecated_is_still_there() -> None:
    for minor in range(28, 34):
        release = facts_for(Version(0, minor))
        assert all(d.flag in known.flags(release.version) for d in release.deprecated)
    assert [d.flag for d in facts_for(Version(0, 31)).deprecated] == ["log-config-file"]


@pytest.mark.parametrize(
    ("version", "nearest", "certain"),
    [
        (Version(0, 28), Version(0, 28), True),
        (Version(0, 33), Version(0, 33), True),
        (Version(0, 34), Version(0, 33), False),
        (Version(1, 0), Version(0, 33), False),
        (Version(0, 9), Version(0, 28), False),
    ],
)
def test_the_nearest_known_version(version: Version, nearest: Version, *, certain: bool) -> None:
    found = facts_for(version)
    assert (found.version, found.certain) == (nearest, certain)


def test_how_many_words_flags_take() -> None:
    flags = known.flags(Version(0, 33))
    assert flags["enable-prefix-caching"] is Takes.NOTHING
    assert flags["no-enable-prefix-caching"] is Takes.NOTHING
    assert flags["served-model-name"] is Takes.MANY
    assert flags["hf-token"] is Takes.MAYBE
    assert flags["max-num-seqs"] is Takes.ONE
    # `store_true` has no opposite.
    assert "headless" in flags
    assert "no-headless" not in flags
    assert known.short_flags(Version(0, 33))["-tp"] == "tensor-parallel-size"


def test_what_is_declared_of_architectures() -> None:
    assert known.traits("LlamaForCausalLM") == frozenset()
    assert Trait.HYBRID in (known.traits("JambaForCausalLM") or ())
    assert Trait.POOLING in (known.traits("BertModel") or ())
    assert Trait.DRAFTING in (known.traits("MedusaModel") or ())
    assert known.traits("OursForCausalLM") is None

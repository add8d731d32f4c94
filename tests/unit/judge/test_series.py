"""Properties of the evidence in bad events, whatever they are."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.judge.traffic import poisson, seeded
from vllm_upgrade_operator.judge import state
from vllm_upgrade_operator.judge.budget import enough
from vllm_upgrade_operator.judge.noise import Noise, Pairs, State
from vllm_upgrade_operator.judge.packed import pack, unpack
from vllm_upgrade_operator.judge.ranks import Ranks
from vllm_upgrade_operator.judge.series import BLOCK_LOOKS, Bet, Series, Terms
from vllm_upgrade_operator.judge.wager import Wager

if TYPE_CHECKING:
    from random import Random

    from vllm_upgrade_operator.judge.series import Counts

TERMS = [Terms(margin=1.5), Terms(margin=1.0, limit=0.01)]
LEARNING = 60
_POD = st.tuples(st.integers(0, 20), st.integers(20, 100)).map(lambda p: (float(p[0]), float(p[1])))
_LOOK = st.tuples(
    st.dictionaries(st.sampled_from("ab"), _POD, min_size=0, max_size=2),
    st.dictionaries(st.sampled_from("xyz"), _POD, min_size=0, max_size=3),
)
_LOOKS = st.lists(_LOOK, min_size=1, max_size=40)


def fresh() -> Series:
    return Series([Bet() for _ in TERMS])


def evidence(series: Series) -> list[float]:
    return [series.evidence(i, t) for i, t in enumerate(TERMS)] + [
        bet.safety.value for bet in series.bets
    ]


@given(_LOOKS, st.integers(0, 39))
@settings(max_examples=60, deadline=None)
def test_evidence_survives_a_restart_of_the_operator(
    looks: list[tuple[dict[str, Counts], dict[str, Counts]]], at: int
) -> None:
    through, restarted = fresh(), fresh()
    for number, (canary, stable) in enumerate(looks):
        if number == at:
            raw = unpack(pack("same", state.dump(restarted)), "same")
            assert raw is not None
            restarted = state.load(raw)
        through.look(TERMS, canary, stable)
        restarted.look(TERMS, canary, stable)
    assert evidence(restarted) == pytest.approx(evidence(through), rel=1e-3)


@given(_LOOKS)
@settings(max_examples=60, deadline=None)
def test_evidence_does_not_depend_on_the_order_of_pods(
    looks: list[tuple[dict[str, Counts], dict[str, Counts]]],
) -> None:
    one, other = fresh(), fresh()
    for canary, stable in looks:
        one.look(TERMS, canary, stable)
        other.look(
            TERMS, dict(reversed(list(canary.items()))), dict(reversed(list(stable.items())))
        )
    assert evidence(other) == pytest.approx(evidence(one))


@given(_LOOKS)
@settings(max_examples=60, deadline=None)
def test_evidence_is_a_number_whatever_is_counted(
    looks: list[tuple[dict[str, Counts], dict[str, Counts]]],
) -> None:
    series = fresh()
    for canary, stable in looks:
        series.look(TERMS, canary, stable)
    assert all(math.isfinite(e) and e >= 0 for e in evidence(series))
    json.dumps(state.dump(series)["b"], allow_nan=False)


def test_within_a_block_that_counts_as_one_looks_may_be_merged() -> None:
    """While the noise is unknown only the sums of a block matter."""
    apart, merged = fresh(), fresh()
    for series in (apart, merged):
        for _ in range(BLOCK_LOOKS):
            series.look(TERMS, {}, {"x": (0.0, 100.0), "y": (0.0, 100.0)})
    for number in range(5):
        counts = (float(number % 3), 50.0)
        for _ in range(2):
            apart.look(TERMS, {"a": counts}, {"x": (0.0, 50.0), "y": (1.0, 50.0)})
        doubled = (counts[0] * 2, 100.0)
        merged.look(TERMS, {"a": doubled}, {"x": (0.0, 100.0), "y": (2.0, 100.0)})
    for i in range(len(TERMS)):
        assert merged.bets[i].compared.pending == pytest.approx(apart.bets[i].compared.pending)
        assert merged.bets[i].limited.pending == pytest.approx(apart.bets[i].limited.pending)
        assert merged.bets[i].safety.value == pytest.approx(apart.bets[i].safety.value)


def draw(random: Random, rate: float, of: float = 100.0) -> Counts:
    return float(min(of, poisson(random, rate * of))), of


def learned(random: Random, rate: float = 0.005, pods: int = 3) -> Series:
    series = fresh()
    for _ in range(LEARNING):
        series.look(TERMS, {}, {f"s{i}": draw(random, rate) for i in range(pods)})
    return series


def found(series: Series) -> bool:
    return enough([series.harm(i, t) for i, t in enumerate(TERMS)], 0.99)


def test_four_times_the_rejections_are_harm_within_minutes() -> None:
    looks = []
    for seed in range(20):
        random = seeded(seed)
        series = learned(random)
        for look in range(1, 200):
            series.look(
                TERMS, {"c": draw(random, 0.02)}, {f"s{i}": draw(random, 0.005) for i in range(3)}
            )
            if found(series):
                looks.append(look)
                break
    assert len(looks) == 20
    assert sorted(looks)[10] <= 30


def test_as_many_rejections_are_no_harm_and_are_shown_to_be_safe() -> None:
    for seed in range(10):
        random = seeded(seed)
        series = learned(random)
        for _ in range(150):
            series.look(
                TERMS, {"c": draw(random, 0.005)}, {f"s{i}": draw(random, 0.005) for i in range(3)}
            )
            assert not found(series)
        assert all(series.safe(i, t) for i, t in enumerate(TERMS))


def test_independent_events_are_quiet_and_clumped_ones_are_loud() -> None:
    # By chance one in ten looks clumped for a while; then it is judged by blocks.
    calm = [learned(seeded(seed), 0.02).noise.state for seed in range(10)]
    assert calm.count(State.QUIET) >= 8
    assert State.LOUD not in calm
    loud = seeded(1)
    bursts = fresh()
    for look in range(LEARNING):
        bursts.look(
            TERMS,
            {},
            {f"s{i}": draw(loud, 0.3 if (look // 6 + i) % 10 == 0 else 0.001) for i in range(3)},
        )
    assert bursts.noise.state is State.LOUD


def test_a_burst_that_all_pods_share_is_no_noise() -> None:
    random = seeded(1)
    series = fresh()
    for look in range(LEARNING):
        rate = 0.2 if look % 10 == 0 else 0.01
        series.look(TERMS, {}, {f"s{i}": draw(random, rate) for i in range(3)})
    assert series.noise.state is State.QUIET


@pytest.mark.parametrize(("pods", "looks"), [(1, 180), (2, 120), (3, 60), (16, 60)])
def test_learning_takes_longer_with_fewer_pods(pods: int, looks: int) -> None:
    assert Noise(pods=pods).wanted == looks


def test_pairs_of_independent_events_are_as_many_as_expected() -> None:
    random = seeded(3)
    pairs = Pairs()
    for _ in range(2000):
        pairs.add([draw(random, 0.02), draw(random, 0.02, 200.0)])
    assert abs(pairs.surprise) < 3
    assert pairs.excess == pytest.approx(0.0, abs=0.05)


def test_the_worst_of_four_pods_four_times_is_suspicious_and_no_more() -> None:
    ranks = Ranks()
    for _ in range(4):
        ranks.block([0.4], [0.0, 0.0, 0.0])
    assert 20 < ranks.value < 4**4
    for _ in range(8):
        ranks.block([0.0], [0.1, 0.1, 0.1])
    assert ranks.value < 5


def test_a_look_alone_is_never_enough() -> None:
    wager = Wager()
    wager.look(1000.0, 1000.0, 0.01, at_once=True)
    assert wager.value < 700 / 20


def test_evidence_of_several_limits_adds_up() -> None:
    assert not enough([350.0, 1.0, 1.0, 1.0], 0.99)
    assert enough([150.0, 150.0, 101.0, 1.0], 0.99)
    assert not enough([], 0.99)

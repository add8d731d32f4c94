from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from localcluster.sim.engine import Limits, Speed
from tests.unit.judge.answered import answered, drawn, look
from tests.unit.judge.scraped import Server
from tests.unit.judge.traffic import seeded
from vllm_upgrade_operator.api.spec import Metric
from vllm_upgrade_operator.judge.mix import Kind, Mix, compare, explains, flatters, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.judge.counters import Delta
    from vllm_upgrade_operator.judge.mix import MixFinding

SAME: dict[str, Any] = {}


def taken(
    canary: Mapping[str, Any],
    stable: Mapping[str, Any] = SAME,
    *,
    looks: int = 30,
    stables: int = 3,
    seed: int = 1,
) -> Mix:
    """Draw so many looks at one canary pod and some stable ones."""
    random, mix = seeded(seed), Mix()
    for _ in range(looks):
        mix.add(
            look(
                {"c": drawn(random, **canary)},
                {f"s{i}": drawn(random, **stable) for i in range(stables)},
            )
        )
    return mix


def found(mix: Mix) -> MixFinding:
    finding = compare(mix)
    assert finding is not None
    return finding


def kinds(mix: Mix) -> list[Kind]:
    finding = compare(mix)
    return [] if finding is None else [d.kind for d in finding.differences]


def explained(finding: MixFinding) -> set[Metric]:
    return {metric for metric in Metric if explains(finding, metric)}


def flattered(finding: MixFinding) -> set[Metric]:
    return {metric for metric in Metric if flatters(finding, metric)}


LATENCIES = {
    Metric.TIME_TO_FIRST_TOKEN,
    Metric.INTER_TOKEN_LATENCY,
    Metric.END_TO_END_LATENCY,
}
LOAD = {Metric.QUEUE_DEPTH, Metric.KV_CACHE_USAGE, Metric.PREEMPTIONS}
OF_OUTPUTS = LOAD | {Metric.END_TO_END_LATENCY}


@pytest.mark.parametrize("stables", [1, 3, 8])
def test_the_same_traffic_is_never_found_to_differ(stables: int) -> None:
    random, mix = seeded(stables), Mix()
    for _ in range(150):
        pods = {f"s{i}": drawn(random) for i in range(stables)}
        mix.add(look({"c": drawn(random)}, pods))
        assert compare(mix) is None


def test_longer_prompts_are_found_within_a_minute_and_named() -> None:
    finding = found(taken({"prompt": 900.0}, looks=6))
    (difference,) = finding.differences
    assert difference.kind is Kind.LONGER_PROMPTS
    assert difference.canary == pytest.approx(900, rel=0.2)
    assert difference.stable == pytest.approx(400, rel=0.2)
    assert difference.sigmas > 4
    assert finding.sentence == (
        "the canary gets other requests than stable pods, in the last 10 min: prompts of "
        f"{difference.canary:.0f} tokens on average against {difference.stable:.0f}"
    )


def test_longer_prompts_explain_what_depends_on_the_load_and_no_errors() -> None:
    finding = found(taken({"prompt": 900.0}))
    assert explained(finding) == LATENCIES | LOAD
    assert flattered(finding) == set()


@pytest.mark.parametrize(
    ("for_tokens", "explains_rejections"), [(0.0, False), (1.0, False), (3.0, True)]
)
def test_longer_prompts_explain_rejections_where_most_are_for_tokens(
    for_tokens: float, *, explains_rejections: bool
) -> None:
    finding = found(taken({"prompt": 900.0, "rejected": 4.0, "rejected_for_tokens": for_tokens}))
    assert explains(finding, Metric.REJECTIONS) is explains_rejections


def test_longer_outputs_explain_less_since_the_candidate_may_make_them_itself() -> None:
    finding = found(taken({"output": 200.0}))
    assert kinds(taken({"output": 200.0})) == [Kind.LONGER_OUTPUTS]
    assert explained(finding) == OF_OUTPUTS
    assert "outputs of" in finding.sentence


def test_a_canary_that_cuts_its_answers_off_is_excused_for_nothing() -> None:
    finding = found(taken({"output": 40.0, "errors": 30.0}))
    assert [d.kind for d in finding.differences] == [Kind.SHORTER_OUTPUTS]
    assert explained(finding) == set()
    assert flattered(finding) == OF_OUTPUTS


def test_shorter_prompts_make_nothing_worse_and_a_pass_worthless() -> None:
    finding = found(taken({"prompt": 150.0}))
    assert explained(finding) == set()
    assert flattered(finding) == LATENCIES | LOAD


def test_both_lengths_may_differ() -> None:
    mix = taken({"prompt": 900.0, "output": 30.0})
    assert kinds(mix) == [Kind.LONGER_PROMPTS, Kind.SHORTER_OUTPUTS]
    assert "; outputs of " in found(mix).sentence


def exact(prompt: float, looks: int, requests: float = 100.0) -> Mix:
    mix = Mix()
    for _ in range(looks):
        pods = {f"s{i}": answered(requests) for i in range(3)}
        mix.add(look({"c": answered(requests, prompt=prompt)}, pods))
    return mix


GOOD = Limits(kv_blocks=8192, max_num_seqs=64)
HARMFUL = {
    "little memory": (Limits(kv_blocks=300, max_num_seqs=64), Speed()),
    "slow steps": (GOOD, Speed(step_seconds=0.06)),
    "slow prefill": (GOOD, Speed(prefill_tokens_per_second=3500.0)),
    "few requests let in": (Limits(kv_blocks=400, max_num_queued_reqs=20), Speed()),
    "few tokens let in": (Limits(kv_blocks=400, max_num_queued_tokens=1500), Speed()),
}


@pytest.mark.parametrize("harm", HARMFUL)
def test_a_canary_does_not_make_its_own_excuse(harm: str) -> None:
    """What finishes under a backlog, or is let in at all, might be another mix than what came."""
    random, mix = seeded(2), Mix()
    canary = Server(*HARMFUL[harm])
    stable = [Server(GOOD) for _ in range(3)]
    for _ in range(12):
        for server in (canary, *stable):
            server.load(random, 10.0, 10.0, prompt=300.0, output=80.0)
        mix.add(look({"c": canary.look()}, {f"s{i}": s.look() for i, s in enumerate(stable)}))
        assert compare(mix) is None
    assert mix.prompts.canary.n > 300


def test_a_small_difference_is_none_however_certain() -> None:
    assert kinds(exact(1.29 * 400, 60)) == []
    assert kinds(exact(1.31 * 400, 60)) == [Kind.LONGER_PROMPTS]
    assert kinds(exact(400 / 1.29, 60)) == []
    assert kinds(exact(400 / 1.31, 60)) == [Kind.SHORTER_PROMPTS]


def test_too_few_looks_or_requests_say_nothing() -> None:
    assert kinds(exact(4000.0, 5)) == []
    assert kinds(exact(4000.0, 7)) == [Kind.LONGER_PROMPTS]
    assert kinds(exact(4000.0, 7, requests=5.0)) == []
    assert compare(Mix()) is None


def test_stable_pods_that_differ_among_themselves_as_much_excuse_nothing() -> None:
    random, mix = seeded(7), Mix()
    for _ in range(60):
        pods = {f"s{i}": drawn(random, prompt=p) for i, p in enumerate((200.0, 400.0, 900.0))}
        mix.add(look({"c": drawn(random, prompt=900.0)}, pods))
    assert compare(mix) is None


def test_a_difference_that_is_over_is_forgotten() -> None:
    random, mix = seeded(3), Mix()
    for number in range(360):
        prompt = 1200.0 if number < 30 else 400.0
        pods = {f"s{i}": drawn(random) for i in range(3)}
        mix.add(look({"c": drawn(random, prompt=prompt)}, pods))
        if number == 29:
            assert kinds(mix) == [Kind.LONGER_PROMPTS]
    assert kinds(mix) == []


@pytest.mark.parametrize("blind", ["canary", "stable"])
def test_a_side_without_the_metric_is_not_compared(blind: str) -> None:
    without = {"prompt_lengths": None, "output_lengths": None, "finished_by_model": None}
    other = {"prompt": 900.0}
    mix = taken(without, other) if blind == "canary" else taken(other, without)
    assert compare(mix) is None


def test_no_stable_pods_leave_nothing_to_compare_with() -> None:
    assert compare(taken({"prompt": 900.0}, stables=0)) is None
    mix = Mix()
    mix.add(look({}, {}))
    assert mix == Mix()


def by_model(**counts: float) -> dict[str, Any]:
    return {"finished_by_model": counts}


def test_other_models_explain_every_latency_either_way() -> None:
    finding = found(taken(by_model(big=60.0, small=40.0), by_model(big=20.0, small=80.0)))
    (difference,) = finding.differences
    assert difference.kind is Kind.OTHER_MODELS
    assert difference.canary == pytest.approx(0.6)
    assert difference.stable == pytest.approx(0.2)
    assert "40% of them for other models, such as big with 60% against 20%" in finding.sentence
    assert explained(finding) == flattered(finding) == LATENCIES


def test_a_few_more_requests_for_one_model_are_no_other_mix() -> None:
    assert compare(taken(by_model(big=30.0, small=70.0), by_model(big=20.0, small=80.0))) is None


def test_a_served_name_that_was_changed_is_no_other_mix() -> None:
    assert compare(taken(by_model(new=100.0), by_model(old=100.0))) is None


def test_a_model_that_comes_up_later_was_no_share_before() -> None:
    random, mix = seeded(5), Mix()
    for number in range(60):
        more = by_model(a=50.0, b=50.0) if number >= 50 else by_model(a=100.0)
        pods = {f"s{i}": drawn(random, **by_model(a=100.0)) for i in range(3)}
        mix.add(look({"c": drawn(random, **more)}, pods))
    share = mix.models["b"].canary.mean
    assert 0.05 < share < 0.15
    assert mix.models["b"].stable.mean == 0.0


def test_models_beyond_those_that_are_followed_count_together() -> None:
    many = {"a": 20.0} | {f"n{i}": 10.0 for i in range(8)}
    mix = taken({"finished_by_model": many}, by_model(a=100.0))
    assert len(mix.models) == 5
    assert "80% of them for other models, such as a with 20% against 100%" in found(mix).sentence


def test_what_has_not_the_form_of_a_name_is_shown_as_a_number() -> None:
    odd = {"finished_by_model": {"a": 20.0, "</b>\n" * 40: 80.0}}
    mix = taken(odd, by_model(a=100.0))
    sentence = found(mix).sentence
    assert "</b>" not in sentence + mix.dump()
    assert ", such as #52d02a23 with 80% against 0%" in sentence


def test_an_adapter_that_only_the_canary_is_asked_for() -> None:
    finding = found(taken({"adapters": ("sql",)}, {"adapters": ()}))
    assert [d.kind for d in finding.differences] == [Kind.OTHER_ADAPTERS]
    assert "LoRA adapter sql in use in 100% of looks against 0%" in finding.sentence
    assert explained(finding) == LATENCIES


def test_adapters_that_both_sides_use_are_no_difference() -> None:
    assert compare(taken({"adapters": ("sql",)}, {"adapters": ("sql",)})) is None


def test_a_candidate_without_adapters_is_no_matter_of_traffic() -> None:
    assert compare(taken({"adapters": None}, {"adapters": ("sql",)})) is None


def test_a_restart_of_the_operator_changes_nothing() -> None:
    random, kept, restarted = seeded(9), Mix(), Mix()
    for _ in range(20):
        pods: dict[str, Delta] = {f"s{i}": drawn(random, adapters=("x",)) for i in range(3)}
        one = look({"c": drawn(random, prompt=700.0, adapters=())}, pods)
        kept.add(one)
        restarted = load(restarted.dump())
        restarted.add(one)
    assert kinds(kept) == [Kind.LONGER_PROMPTS, Kind.OTHER_ADAPTERS]
    for mine, theirs in zip(found(kept).differences, found(restarted).differences, strict=True):
        assert mine.sigmas == pytest.approx(theirs.sigmas, rel=1e-4)
        assert mine.canary == pytest.approx(theirs.canary)


def test_a_record_holds_both_sides_whether_they_differ_or_not() -> None:
    mix = taken(by_model(a=75.0, b=25.0), {**by_model(a=100.0), "adapters": ("x",)}, looks=1)
    record = mix.record()
    assert record["models"] == {
        "a": {"canary": 0.75, "stable": 1.0},
        "b": {"canary": 0.25, "stable": 0.0},
    }
    assert record["adapters"] == {"x": {"canary": None, "stable": 1.0}}
    assert record["prompt_tokens"]["stable"] == pytest.approx(400, rel=0.3)
    assert Mix().record()["output_tokens"] == {"canary": None, "stable": None}


def test_the_order_of_the_pods_does_not_matter() -> None:
    random = seeded(4)
    pods = {f"s{i}": drawn(random) for i in range(12)}
    there, back = Mix(), Mix()
    for _ in range(10):
        there.add(look({"c": answered(80.0)}, pods))
        back.add(look({"c": answered(80.0)}, dict(reversed(pods.items()))))
    assert there.prompts.stable.ss == pytest.approx(back.prompts.stable.ss)
    assert len(there.prompts.pods) == 8
    assert there.prompts.pods == back.prompts.pods


@pytest.mark.parametrize("text", [None, "", "no json", "[]", '{"v":0}'])
def test_what_cannot_be_read_is_no_state(text: str | None) -> None:
    assert load(text) == Mix()


def test_it_stays_small_however_large_the_fleet() -> None:
    models = {f"organisation/{'a-long-name-' * 10}{i}": 7.123 for i in range(20)}
    mix = taken(
        {"finished_by_model": models, "adapters": tuple(models)},
        {"finished_by_model": models, "adapters": tuple(models)},
        looks=10,
        stables=40,
    )
    assert len(mix.dump()) < 12_000
    assert all(len(found) <= 300 for found in [found(taken({"prompt": 9e5})).sentence])

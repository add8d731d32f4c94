from __future__ import annotations

import random

import pytest

from localcluster.sim.engine import Engine, Limits, Rejection, Request, Speed

SPEED = Speed(step_seconds=0.01, sequence_seconds=0.001, prefill_tokens_per_second=1000.0)
TINY = Limits(max_num_seqs=8, max_num_batched_tokens=64, kv_blocks=40)


def admit(engine: Engine, prompt: int = 10, output: int = 5) -> Request:
    request = engine.admit(prompt, output)
    assert isinstance(request, Request)
    return request


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - traffic is no secret


def used_blocks(engine: Engine) -> int:
    return round(engine.kv_usage * engine.limits.kv_blocks)


def traffic(engine: Engine, seed: int, requests: int, rate: float) -> list[Request]:
    """Offer Poisson traffic; the requests that were let in."""
    source, inside = seeded(seed), []
    for _ in range(requests):
        engine.advance(engine.now + source.expovariate(rate))
        found = engine.admit(
            1 + int(source.expovariate(1 / 60)) % 300, 1 + int(source.expovariate(1 / 30)) % 200
        )
        if isinstance(found, Request):
            inside.append(found)
    return inside


def test_the_times_of_one_request_are_those_of_its_steps() -> None:
    engine = Engine(Limits(), SPEED)
    request = admit(engine, prompt=100, output=3)
    engine.advance(10.0)
    # A step with 100 prompt tokens, then two with one sequence each.
    assert request.first_token_at == pytest.approx(0.01 + 0.001 + 0.1)
    assert request.last_token_at == pytest.approx(0.111 + 2 * 0.011)
    figures = engine.figures
    assert figures.ttft.total == pytest.approx(0.111)
    assert figures.itl.total == pytest.approx(0.022)
    assert sum(figures.itl.counts) == 2
    assert figures.tpot.total == pytest.approx(0.011)
    assert figures.e2e.total == pytest.approx(0.133)
    assert figures.decode.total == pytest.approx(0.022)
    assert figures.queue.total == 0.0


def test_a_long_prompt_is_computed_in_chunks_between_which_others_decode() -> None:
    engine = Engine(Limits(max_num_batched_tokens=50), SPEED)
    other = admit(engine, prompt=10, output=100)
    engine.advance(0.05)
    before = other.generated
    long = admit(engine, prompt=200, output=1)
    while not long.done:
        engine.advance(engine.step_end)
    # 49 prompt tokens fit beside the other's one: five steps, in each of which it got a token.
    # The step that was under way when the long prompt came gave it one too.
    assert other.generated - before == 6


def test_a_request_waits_while_the_batch_is_full() -> None:
    engine = Engine(Limits(max_num_seqs=1), SPEED)
    first, second = admit(engine, output=10), admit(engine, output=1)
    engine.advance(0.05)
    assert (len(engine.running), len(engine.waiting)) == (1, 1)
    assert second.first_token_at is None
    engine.advance(1.0)
    assert second.scheduled_at == pytest.approx(first.last_token_at)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_the_limit_on_requests_counts_running_ones_and_is_exact(limit: int) -> None:
    engine = Engine(Limits(max_num_queued_reqs=limit, max_num_seqs=2), SPEED)
    found = []
    for _ in range(limit + 2):
        found.append(engine.admit(10, 50))
        engine.advance(engine.now + 0.02)
    assert [isinstance(f, Request) for f in found] == [True] * limit + [False] * 2
    assert engine.figures.rejections == {Rejection.REQUESTS: 2, Rejection.TOKENS: 0}


def test_a_place_that_gets_free_is_given_again() -> None:
    engine = Engine(Limits(max_num_queued_reqs=1), SPEED)
    request = admit(engine)
    assert engine.admit(10, 5) is Rejection.REQUESTS
    engine.abort(request)
    admit(engine)


def test_the_limit_on_tokens_counts_prompts_that_wait_or_are_being_prefilled() -> None:
    engine = Engine(Limits(max_num_queued_tokens=100), SPEED)
    admit(engine, prompt=60, output=50)
    admit(engine, prompt=60, output=50)
    # 120 is over the limit: the limit is on what is there already, as in vLLM.
    assert engine.admit(1, 1) is Rejection.TOKENS
    engine.advance(1.0)
    admit(engine)


@pytest.mark.parametrize(("prompt", "output"), [(0, 1), (1, 0), (600, 41)])
def test_a_request_that_cannot_be_is_an_error(prompt: int, output: int) -> None:
    with pytest.raises(ValueError, match=r"token"):
        Engine(TINY, SPEED).admit(prompt, output)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_and_nobody_starves(seed: int) -> None:
    engine = Engine(TINY, SPEED)
    requests = traffic(engine, seed, 200, rate=5.0)
    engine.advance(engine.now + 1000.0)
    figures = engine.figures
    assert all(r.done and r.generated == r.output_tokens for r in requests)
    assert figures.finished == len(requests) == 200
    assert figures.generation_tokens == sum(r.output_tokens for r in requests)
    assert figures.prompt_tokens == sum(r.prompt_tokens for r in requests)
    assert figures.output_lengths.total == figures.generation_tokens
    assert figures.iterations.total == figures.generation_tokens + figures.prompt_tokens
    assert sum(figures.itl.counts) == figures.generation_tokens - len(requests)
    assert figures.preemptions == sum(r.preemptions for r in requests) > 0
    assert engine.kv_usage == 0.0
    assert engine.idle


@pytest.mark.parametrize("seed", range(5))
def test_the_cache_is_never_exceeded_and_what_is_in_it_is_paid_for(seed: int) -> None:
    engine, source = Engine(TINY, SPEED), seeded(seed)
    for _ in range(300):
        engine.advance(engine.now + source.expovariate(20.0))
        engine.admit(1 + source.randrange(200), 1 + source.randrange(100))
        held = sum(r.blocks for r in engine.running)
        assert held == used_blocks(engine) <= TINY.kv_blocks
        assert all(r.computed <= r.blocks * TINY.block_size for r in engine.running)
        assert len(engine.running) <= TINY.max_num_seqs
        assert all(r.blocks == 0 for r in engine.waiting)


def test_the_newest_request_loses_its_blocks_and_is_the_next_to_come_back() -> None:
    engine = Engine(Limits(kv_blocks=4, block_size=16), SPEED)
    old, young = admit(engine, prompt=31, output=30), admit(engine, prompt=31, output=30)
    later = admit(engine, prompt=1, output=1)
    engine.advance(10.0)
    assert (old.preemptions, young.preemptions) == (0, 1)
    assert young.first_token_at is not None
    assert young.scheduled_at == 0.0
    assert later.done
    assert old.last_token_at < young.last_token_at


@pytest.mark.parametrize("seed", range(3))
def test_the_same_comes_out_in_many_small_advances_and_in_few_large_ones(seed: int) -> None:
    # Speeds that put no time on the bound of a bucket.
    speed = Speed(step_seconds=0.0103, sequence_seconds=0.00107, prefill_tokens_per_second=1013.0)
    whole, sliced = (Engine(Limits(max_num_seqs=6, kv_blocks=60), speed) for _ in range(2))
    source = seeded(seed)
    for _ in range(100):
        now = whole.now + source.expovariate(8.0)
        whole.advance(now)
        while sliced.now + 0.005 < now:
            sliced.advance(sliced.now + 0.005)
        sliced.advance(now)
        request = (1 + source.randrange(200), 1 + source.randrange(100))
        whole.admit(*request)
        sliced.admit(*request)
    for engine in (whole, sliced):
        engine.advance(1000.0)
    for name in ("ttft", "itl", "tpot", "e2e", "queue", "iterations"):
        one, other = getattr(whole.figures, name), getattr(sliced.figures, name)
        assert one.counts == other.counts, name
        assert one.total == pytest.approx(other.total), name
    assert whole.figures.preemptions == sliced.figures.preemptions


def test_what_advance_gives_is_every_token_once() -> None:
    engine = Engine(TINY, SPEED)
    got: dict[Request, int] = {}
    source, requests = seeded(1), []
    for _ in range(100):
        for request, tokens in engine.advance(engine.now + source.expovariate(5.0)).items():
            got[request] = got.get(request, 0) + tokens
        requests.append(admit(engine, 1 + source.randrange(99), 1 + source.randrange(50)))
    for request, tokens in engine.advance(1000.0).items():
        got[request] = got.get(request, 0) + tokens
    assert got == {r: r.output_tokens for r in requests}


def _mean(figures: object, name: str) -> float:
    histogram = getattr(figures, name)
    return float(histogram.total / sum(histogram.counts))


@pytest.mark.parametrize(
    ("worse", "figure"),
    [
        (Speed(step_seconds=0.02, sequence_seconds=0.002, prefill_tokens_per_second=1e3), "itl"),
        (Speed(step_seconds=0.01, sequence_seconds=0.001, prefill_tokens_per_second=1e2), "ttft"),
    ],
)
def test_a_slower_engine_is_seen_where_it_is_slower(worse: Speed, figure: str) -> None:
    engines = [Engine(Limits(), speed) for speed in (SPEED, worse)]
    for engine in engines:
        traffic(engine, 1, 100, rate=1.0)
        engine.advance(1e4)
    good, bad = (_mean(e.figures, figure) for e in engines)
    assert bad > 1.5 * good


def test_an_overload_fills_the_queue_and_an_abort_takes_from_it() -> None:
    engine = Engine(Limits(max_num_seqs=1), SPEED)
    requests = [admit(engine, output=50) for _ in range(10)]
    engine.advance(0.1)
    assert len(engine.waiting) == 9
    for request in requests:
        engine.abort(request)
        engine.abort(request)
    assert engine.idle
    assert engine.kv_usage == 0.0
    assert engine.figures.aborted == 10
    assert engine.figures.finished == 0
    engine.advance(1.0)
    admit(engine)
    engine.advance(2.0)
    assert engine.figures.finished == 1


def test_a_cache_that_shrinks_preempts_and_fails_what_can_never_fit() -> None:
    engine = Engine(Limits(kv_blocks=100), SPEED)
    small = [admit(engine, prompt=100, output=60) for _ in range(3)]
    large = admit(engine, prompt=400, output=100)
    engine.advance(0.9)
    failed = engine.resize(Limits(kv_blocks=12))
    assert failed == [large]
    assert large.done
    assert engine.figures.failed == 1
    engine.advance(1.0)
    assert used_blocks(engine) <= 12
    engine.advance(100.0)
    assert all(r.done and r.generated == 60 for r in small)
    assert engine.figures.preemptions > 0
    assert engine.kv_usage == 0.0

from localcluster.nodeagent.probes import Tally, Timing


def timing(success: int = 1, failure: int = 3) -> Timing:
    return Timing.of({"successThreshold": success, "failureThreshold": failure})


def test_defaults_are_those_of_the_api() -> None:
    assert Timing.of({}) == Timing(
        initial_delay=0, period=10, timeout=1, success_threshold=1, failure_threshold=3
    )


def test_failures_count_only_in_a_row() -> None:
    tally = Tally(timing(failure=2), healthy=True)
    reached = [tally.add(success=ok) for ok in (False, True, False, False)]
    assert reached == [False, True, False, True]
    assert tally.healthy is False


def test_a_state_holds_until_the_threshold_is_reached() -> None:
    tally = Tally(timing(success=3), healthy=False)
    states = []
    for ok in (True, True, True):
        tally.add(success=ok)
        states.append(tally.healthy)
    assert states == [False, False, True]


def test_one_failure_below_the_threshold_leaves_a_ready_container_ready() -> None:
    tally = Tally(timing(), healthy=False)
    for ok in (True, False, False):
        tally.add(success=ok)
    assert tally.healthy
    tally.add(success=False)
    assert not tally.healthy

from localcluster.nodeagent.backoff import Backoff


def test_the_first_restart_is_immediate_then_delays_double_up_to_the_cap() -> None:
    backoff = Backoff(10)
    delays = []
    for number in range(8):
        delays.append(backoff.after_exit(number))
        backoff.started(number)
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_calm_of_ten_minutes_starts_the_count_again() -> None:
    backoff = Backoff(10)
    for _ in range(4):
        backoff.started(1000)
    assert backoff.after_exit(1600) == 80
    assert backoff.after_exit(1601) == 0
    backoff.started(1601)
    assert backoff.after_exit(1602) == 10

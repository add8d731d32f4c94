import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from localcluster.nodeagent import logs
from localcluster.nodeagent.logs import Log, LogOptions


async def read(log: Log, **options: object) -> str:
    wanted = LogOptions(**options)  # type: ignore[arg-type]
    return b"".join([piece async for piece in log.read(wanted)]).decode()


def size(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.iterdir())


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "0.log")


async def test_lines_of_both_streams_come_whole_and_in_order(log: Log) -> None:
    log.feed("stdout", b"one\ntw")
    log.feed("stderr", b"error\n")
    log.feed("stdout", b"o\nlast without end")
    assert await read(log) == "one\nerror\ntwo\n"
    log.close()
    assert await read(log) == "one\nerror\ntwo\nlast without end\n"


@pytest.mark.parametrize(("count", "expected"), [(0, ""), (1, "9\n"), (3, "7\n8\n9\n")])
async def test_tail(log: Log, count: int, expected: str) -> None:
    log.feed("stdout", b"".join(b"%d\n" % number for number in range(10)))
    assert await read(log, tail_lines=count) == expected


async def test_a_tail_longer_than_the_log_is_all_of_it(log: Log) -> None:
    log.feed("stdout", b"a\nb\n")
    assert await read(log, tail_lines=2) == "a\nb\n"
    assert await read(log, tail_lines=50) == "a\nb\n"


async def test_limit_and_time(log: Log) -> None:
    log.feed("stdout", b"one\ntwo\n")
    assert await read(log, limit_bytes=5) == "one\nt"
    now = datetime.now(UTC)
    assert await read(log, since=now + timedelta(minutes=1)) == ""
    assert await read(log, since=now - timedelta(minutes=1)) == "one\ntwo\n"
    time = (await read(log, timestamps=True, tail_lines=1)).split()[0]
    assert abs(datetime.fromisoformat(time) - now) < timedelta(minutes=1)


async def test_a_follower_gets_new_lines_and_ends_with_the_log(log: Log) -> None:
    log.feed("stdout", b"before\n")
    following = asyncio.create_task(read(log, follow=True))
    await asyncio.sleep(0)
    log.feed("stdout", b"after\n")
    await asyncio.sleep(0)
    assert not following.done()
    log.close()
    assert await asyncio.wait_for(following, 5) == "before\nafter\n"


async def test_the_files_stay_small_and_the_newest_lines_are_kept(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MAX_FILE_BYTES", 1000)
    for number in range(200):
        log.feed("stdout", b"%d\n" % number)
    assert size(tmp_path) <= 2000
    kept = [int(line) for line in (await read(log)).split()]
    assert kept == list(range(kept[0], 200))
    assert 25 <= len(kept) < 200
    # Further back than the newer of the two files.
    assert await read(log, tail_lines=len(kept) - 1) == "".join(f"{n}\n" for n in kept[1:])


async def test_a_line_without_end_does_not_grow_for_ever(log: Log) -> None:
    log.feed("stdout", b"x" * (3 * logs.MAX_LINE_BYTES))
    lines = (await read(log)).split("\n")
    assert max(len(line) for line in lines) == logs.MAX_LINE_BYTES


async def test_a_follower_ends_when_the_log_is_deleted(log: Log) -> None:
    log.feed("stdout", b"before\n")
    following = asyncio.create_task(read(log, follow=True))
    await asyncio.sleep(0)
    log.delete()
    assert await asyncio.wait_for(following, 5) == "before\n"
    assert await read(log, tail_lines=1) == ""

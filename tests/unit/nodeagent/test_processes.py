import asyncio
from pathlib import Path

import pytest

from localcluster.nodeagent.processes import Exit, Ledger, Process, StartError, _members

HERE = {"mounts": [], "stage": "/nowhere"}
ENV = {"PATH": "/usr/bin:/bin"}


def drop(_: str, __: bytes) -> None:
    pass


async def until_ended(session: int) -> None:
    """Nobody is left: what was killed takes a moment to go."""
    async with asyncio.timeout(10):
        while _members(session):  # noqa: ASYNC110  # nobody tells when a grandchild has gone
            await asyncio.sleep(0.01)


async def test_output_and_exit_code_come_back() -> None:
    got: list[tuple[str, bytes]] = []
    process = await Process.start(
        ["sh", "-c", "echo out; echo err >&2; exit 7"],
        ENV,
        "/",
        HERE,
        output=lambda name, data: got.append((name, data)),
    )
    assert await process.wait() == Exit(code=7, signal=0)
    for name, text in (("stdout", b"out\n"), ("stderr", b"err\n")):
        assert b"".join(data for stream, data in got if stream == name) == text


async def test_a_program_that_is_not_there_cannot_be_started() -> None:
    with pytest.raises(StartError, match='exec: "nosuchprogram": executable file not found'):
        await Process.start(["nosuchprogram"], ENV, "/", HERE, output=drop)


async def test_killing_ends_the_whole_session_and_is_reported_as_a_signal() -> None:
    seen = asyncio.Event()
    process = await Process.start(
        ["sh", "-c", "sleep 1000 & echo $!; wait"],
        ENV,
        "/",
        HERE,
        output=lambda *_: seen.set(),
    )
    await asyncio.wait_for(seen.wait(), 10)
    process.kill()
    assert await process.wait() == Exit(code=137, signal=9)
    await until_ended(process.pid)


async def test_the_end_of_the_leader_ends_what_it_left_behind() -> None:
    process = await Process.start(["sh", "-c", "sleep 1000 &"], ENV, "/", HERE, output=drop)
    assert await process.wait() == Exit(code=0, signal=0)
    await until_ended(process.pid)


async def test_the_ledger_ends_recorded_processes_and_no_others(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    process = await Process.start(["sleep", "1000"], ENV, "/", HERE, output=drop, ledger=ledger)
    stranger = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        # As if the recorded process had ended and its number had been given to another one.
        (tmp_path / str(stranger.pid)).write_text("1")
        assert Ledger(tmp_path).end_all() == 1
        assert (await process.wait()).signal == 9
        assert stranger.returncode is None
        assert ledger.end_all() == 0
    finally:
        stranger.kill()
        await stranger.wait()

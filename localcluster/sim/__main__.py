"""`python -m localcluster.sim --version 0.29.0 [serve] MODEL [flags of vllm serve]`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

from aiohttp import web

from localcluster.sim import architectures, faults, memory, options, runner, settings
from localcluster.sim.driver import Driver
from localcluster.sim.logs import Log
from localcluster.sim.server import Server, report
from localcluster.sim.versions import VERSIONS, at_least

_HOST = "0.0.0.0"  # noqa: S104 - as vLLM does
_PORT = 8000
_REPORT_SECONDS = 10.0
# Exit code at SIGTERM before vLLM has begun to handle it (seen on 0.29 and 0.32).
_TERMINATED = 143
# Between the last answer and the end of the process.
_TEARDOWN_SECONDS = 0.2
# When the engine is dead, the API server ends once a client has been told, or when it looks after
# it (VLLM_WATCHDOG_TIME_S, entrypoints/launchers/launcher.py); the HTTP server sees that it shall
# end within a tenth of a second, and what is left takes 0.5 s to 2 s (seen on 0.29 and 0.32).
_WATCHDOG_SECONDS = 5.0
_TICK_SECONDS = 0.1
_DEATH_SECONDS = 0.7
# How long the fault DRAIN_500 lasts.
_FAILING_DRAIN_SECONDS = 2.0


def main() -> int:
    """Play one server until a signal ends it; give its exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] != ["--version"] or arguments[1:2] not in ([v] for v in VERSIONS):
        print(
            f"usage: python -m localcluster.sim --version {'|'.join(VERSIONS)} [serve] MODEL "
            "[flags of vllm serve]",
            file=sys.stderr,
        )
        return 2
    version = arguments[1]
    try:
        played = settings.read(version, options.parse(version, arguments[2:]), os.environ)
        listed = faults.read(version, os.environ)
    except ValueError as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 2
    log = Log(played)
    log.banner()
    unsupported = architectures.refusal(version, played.architecture)
    if unsupported is not None:
        log.refused(unsupported, "ModelConfig")
        return 1
    log.resolved()
    try:
        choice = runner.choose(version, played.options, played.architecture, os.environ)
    except runner.StartError as error:
        if error.in_worker:
            log.failed("Worker", str(error))
        else:
            log.refused(str(error), "VllmConfig")
        return 1
    return asyncio.run(_run(played, log, choice, listed))


async def _run(
    played: settings.Settings, log: Log, choice: runner.Choice, listed: list[faults.Fault]
) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    log.engine(choice)
    if await _stopped_within(played.load_seconds / 4, stop):
        return _TERMINATED
    log.loading(choice)
    if os.environ.get("SIM_OOM_WHILE_LOADING") == "1":
        memory.run_out()
        await stop.wait()
        return _TERMINATED
    if await _stopped_within(played.load_seconds * 3 / 4, stop):
        return _TERMINATED
    log.loaded(played.load_seconds, choice)
    too_small = _too_small(played)
    if too_small is not None:
        log.failed("EngineCore", too_small)
        return 1
    await _serve(played, log, listed, stop)
    return 0


async def _serve(
    played: settings.Settings, log: Log, listed: list[faults.Fault], stop: asyncio.Event
) -> None:
    driver = Driver(played)
    server = Server(played, driver, log)
    application = web.AppRunner(
        server.application(), access_log=None, shutdown_timeout=1.0, handler_cancellation=True
    )
    await application.setup()
    host, port = played.options.text("host", _HOST), played.options.number("port") or _PORT
    site = web.TCPSite(application, host, port, backlog=512)
    await site.start()
    log.serving(host, port)
    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[object]] = [
            group.create_task(driver.run()),
            group.create_task(driver.run_faults(listed)),
            group.create_task(report(driver, log, _REPORT_SECONDS)),
        ]
        ends = [group.create_task(event.wait()) for event in (stop, driver.died)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if driver.died.is_set():
            await _die(log, server, site)
        else:
            await _shut_down(played, log, server, driver, site)
        tasks += ends
        for task in tasks:
            task.cancel()
    await application.cleanup()


async def _die(log: Log, server: Server, site: web.TCPSite) -> None:
    """End as vLLM does when its engine has died: with exit code 0 (seen on 0.29 and 0.32)."""
    log.engine_died()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(server.death_told.wait(), _WATCHDOG_SECONDS)
    await asyncio.sleep(_TICK_SECONDS)
    await site.stop()
    log.closed_after_death()
    await asyncio.sleep(_DEATH_SECONDS)


async def _shut_down(
    played: settings.Settings, log: Log, server: Server, driver: Driver, site: web.TCPSite
) -> None:
    """Stop as vLLM does (seen on 0.28, 0.29 and 0.32).

    With --shutdown-timeout the port goes on answering, `/health` too, while what is in flight is
    finished. Without it the port closes at once and what is in flight is cut short.
    """
    timeout = played.options.number("shutdown-timeout") or 0
    log.stopping(driver.in_flight, timeout)
    if driver.trouble.has("DRAIN_500"):
        server.draining = True
        driver.end_all("error")
        await asyncio.sleep(_FAILING_DRAIN_SECONDS)
        await site.stop()
    elif timeout:
        server.draining = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(driver.answered(), timeout)
        driver.end_all("error")
        await asyncio.sleep(_TEARDOWN_SECONDS)
        await site.stop()
    else:
        await site.stop()
        driver.end_all("error" if at_least(played.version, "0.32.0") else "abort")
        await asyncio.sleep(_TEARDOWN_SECONDS)
    log.stopped()


async def _stopped_within(seconds: float, stop: asyncio.Event) -> bool:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return False
    return True


def _too_small(played: settings.Settings) -> str | None:
    """Say why the KV cache does not do for the model's length, if it does not."""
    longest, held = played.max_model_len, played.limits.kv_tokens
    if longest <= held:
        return None
    return (
        f"To serve at least one request with the models's max seq len ({longest}), more KV cache "
        "is needed than the available KV cache memory. Based on the available memory, the "
        f"estimated maximum model length is {held}. Try increasing `gpu_memory_utilization` or "
        "decreasing `max_model_len` when initializing the engine."
    )


if __name__ == "__main__":
    sys.exit(main())

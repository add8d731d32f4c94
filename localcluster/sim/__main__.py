"""`python -m localcluster.sim --version 0.29.0 [serve] MODEL [flags of vllm serve]`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from aiohttp import web

from localcluster.sim import faults, options, runner
from localcluster.sim.logs import Log
from localcluster.sim.server import Server, Settings
from localcluster.sim.versions import VERSIONS

_DEFAULT_LOAD_SECONDS = 1.0


def main() -> int:
    """Play one server until a signal ends it; give its exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] != ["--version"] or arguments[1] not in VERSIONS:
        print(f"usage: python -m localcluster.sim --version {'|'.join(VERSIONS)} ...")
        return 2
    version = arguments[1]
    settings = Settings(version, options.parse(version, arguments[2:]), os.environ)
    log = Log(version)
    log.banner(settings.options)
    try:
        choice = runner.choose(version, settings.options, os.environ)
    except runner.StartError as error:
        log.refused(str(error))
        return 1
    listed = faults.read(os.environ)
    return asyncio.run(_serve(settings, log, choice, listed))


async def _serve(
    settings: Settings, log: Log, choice: runner.Choice, listed: list[faults.Fault]
) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    model = settings.options.model
    log.configured(
        os.environ.get("SIM_ARCHITECTURE", "LlamaForCausalLM"), choice, settings.max_model_len
    )
    log.engine(model, choice)
    log.loading(choice, model)
    load_seconds = float(os.environ.get("SIM_LOAD_SECONDS", _DEFAULT_LOAD_SECONDS))
    try:
        await asyncio.wait_for(stop.wait(), load_seconds)
    except TimeoutError:
        pass
    else:
        return 0
    log.loaded(load_seconds, settings.limits(), choice, settings.max_model_len)
    server = Server(settings)
    site = web.AppRunner(server.application(), access_log=None, shutdown_timeout=1.0)
    await site.setup()
    host, port = settings.options.host, settings.options.port
    await web.TCPSite(site, host, port, backlog=512).start()
    log.serving(f"{host}:{port}")
    tasks = [
        asyncio.create_task(server.run_engine()),
        asyncio.create_task(server.run_faults(listed)),
    ]
    await stop.wait()
    # As vLLM drains: the port goes on answering, health too, and new requests fail with 500.
    await server.drain(float(settings.options.values.get("shutdown-timeout") or 0))
    for task in tasks:
        task.cancel()
    await site.cleanup()
    return 0


if __name__ == "__main__":
    sys.exit(main())

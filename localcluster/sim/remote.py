"""`POST /sim/fault/<NAME>?value=VALUE`: begins a fault in a running server; `off` ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from localcluster.sim import faults

if TYPE_CHECKING:
    from localcluster.sim.driver import Driver

PATH = "/sim/fault/"
_OFF = "off"


def add_to(application: web.Application, driver: Driver, version: str) -> None:
    """Add the endpoint."""

    async def handle(request: web.Request) -> web.Response:
        name, text = request.match_info["name"], request.query.get("value", "")
        if name not in faults.FAULTS:
            return _text(404, f"{name} is no fault: there are {faults.known()}")
        if text == _OFF:
            if not faults.FAULTS[name].ends:
                return _text(400, f"{name} cannot be ended: what it does is done")
            driver.end(name)
            return _text(200, f"{name} is off")
        try:
            fault = faults.fault(version, name, text)
        except ValueError as error:
            return _text(400, f"{error}, or {_OFF} to end it")
        driver.begin(fault)
        return _text(200, f"{name} is {text}")

    application.router.add_post(f"{PATH}{{name}}", handle)


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")

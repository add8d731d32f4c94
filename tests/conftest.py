"""Granted permissions are used permissions: judged once, after all tests, and counted with them."""

from __future__ import annotations

import pytest

from localcluster import permissions
from localcluster.errors import ClusterError

_NAME = "tests/conftest.py::permissions_granted_are_permissions_used"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that `make test` gives."""
    parser.addoption(
        "--permissions",
        action="store_true",
        help="after a run of all tests on a fresh cluster, hold the permissions that the operator "
        "has used against those that its chart grants",
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Judge what the whole run has used, where no worker runs any more; report it as a test."""
    asked = session.config.getoption("permissions")
    complete = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if not asked or not complete or hasattr(session.config, "workerinput"):
        return
    try:
        found = permissions.check()
    except ClusterError as error:
        found = [str(error)]
    report = pytest.TestReport(
        nodeid=_NAME,
        location=("tests/conftest.py", None, _NAME.rpartition(":")[2]),
        keywords={},
        outcome="failed" if found else "passed",
        longrepr="\n".join(found) or None,
        when="call",
    )
    session.config.hook.pytest_runtest_logreport(report=report)
    if found:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED

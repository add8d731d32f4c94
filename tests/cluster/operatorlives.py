"""The operator's lives, each a process: `python -m tests.cluster.operatorlives ARGUMENTS...`.

Every line on standard input begins one; its process id is printed, and its exit code when it has
ended. A life begins as a copy of this process, which has loaded the operator's code already: most
of a start's time is that, and what a life leaves behind is the same.
"""

from __future__ import annotations

import os
import sys

from vllm_upgrade_operator.__main__ import main


def lives() -> None:
    """Live until standard input ends."""
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            # What the operator prints is its log, not an answer of ours.
            os.dup2(2, 1)
            os._exit(main())
        print(pid, flush=True)  # noqa: T201 - the answer
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


if __name__ == "__main__":
    lives()

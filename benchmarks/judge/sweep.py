"""`python -m benchmarks.judge.sweep CASE MODULE.CONSTANT VALUE...`: one constant, several values.

The constant is one of the judge's (`spread.STANDARD_ERRORS`), read where it is defined: a module
that has imported it by name keeps its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
from multiprocessing import get_context

from benchmarks.judge.cases import CASES
from benchmarks.judge.running import WHOLE, run


def set_constant(name: str, value: float) -> None:
    """Give a constant of the judge another value, in this process.

    Raises:
        ValueError: There is no such constant, or it is no number.
    """
    module_name, _, constant = name.partition(".")
    try:
        module = importlib.import_module(f"vllm_upgrade_operator.judge.{module_name}")
        setattr(module, constant, type(getattr(module, constant))(value))
    except (ImportError, AttributeError, TypeError) as error:
        raise ValueError(f"{name}: {error}; name a number, as in spread.LEAST_SPREAD") from error


def main() -> None:
    """Run the case with each value and print the figures of our judge."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judge.sweep", description=__doc__)
    parser.add_argument("case", help="name of a case")
    parser.add_argument("constant", help="such as spread.STANDARD_ERRORS")
    parser.add_argument("values", type=float, nargs="+")
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    cases = [case for case in CASES if case.name == options.case]
    if not cases:
        parser.error(f"no case is named {options.case!r}")
    size = dataclasses.replace(WHOLE, runs=options.runs, peer_runs=0)
    for value in options.values:
        context = get_context("spawn")
        with context.Pool(options.processes, set_constant, (options.constant, value)) as pool:
            for (row,) in run(cases, size, pool):
                figures = {key: found for key, found in row.items() if found is not None}
                print(f"{options.constant} = {value:g}: {figures}", flush=True)


if __name__ == "__main__":
    main()

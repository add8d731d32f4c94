"""May this upgrade start? An ordered chain of small checks; only a `Block` stops it.

Each check looks at one thing in a `Subject` and gives an `Answer`: `Pass`, `Warn`, `Block`, or
`Unknown` where it could not be told. `chain.py` has their order, which is that of severity: what
cannot start at all, what falls back to another runner, admission and queue limits, advice.
"""

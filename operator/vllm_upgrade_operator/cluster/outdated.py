"""What says that a decision was made on something that is no longer so."""

from __future__ import annotations


class OutdatedError(Exception):
    """The cluster is not as the decision saw it: nothing was done; look again and decide anew."""

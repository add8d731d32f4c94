"""What can go wrong with a local cluster."""


class ClusterError(Exception):
    """The cluster cannot be started or used; the text says why and what to do."""


class BuildError(Exception):
    """A program could not be built or installed; the text says which and why."""

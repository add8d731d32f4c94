"""Open-loop load on the ready endpoints of a Service, and what came of it pod by pod.

The interface is `Options`, `LoadGenerator` and `python -m localcluster.load`.
"""

from localcluster.load.generator import LoadGenerator
from localcluster.load.options import Mix, Options

__all__ = ["LoadGenerator", "Mix", "Options"]

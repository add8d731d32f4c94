"""`vllm-upgrade`, also as `kubectl vllm-upgrade`: what a person or a CI job asks on a command line.

Nothing here needs the operator to be installed, and nothing changes anything in a cluster.
"""

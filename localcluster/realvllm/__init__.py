"""Real vLLM on CPU, as an image of the local cluster: see README.md in this folder."""

"""A vLLM server whose figures come out of a simulated engine: see README.md in this folder."""

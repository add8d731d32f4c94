"""How long the operator takes to read what a vLLM server says."""

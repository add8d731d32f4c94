"""Canary upgrades of vLLM on Kubernetes."""

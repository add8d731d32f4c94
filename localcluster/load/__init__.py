"""Open-loop load on a Service, as clients behind kube-proxy would send it."""

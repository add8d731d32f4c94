"""A real control plane on one machine, for the demo, the tests and the benchmarks."""

"""One module per phase: observation, status and time in, a turn out."""

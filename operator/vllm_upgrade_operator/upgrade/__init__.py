"""The state machine: observation, status and time in, decision out."""

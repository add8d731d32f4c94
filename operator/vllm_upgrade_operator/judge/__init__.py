"""Counters in, evidence and verdict out."""

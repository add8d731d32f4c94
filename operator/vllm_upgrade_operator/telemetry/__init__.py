"""The operator's own metrics and logs."""

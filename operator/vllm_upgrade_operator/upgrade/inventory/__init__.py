"""What runs vLLM, on which runner, and what will not survive an upgrade: pure, of what was seen."""

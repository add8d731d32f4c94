"""What is known of vLLM."""

"""How fast the operator acts, how much memory it takes and how much it writes."""

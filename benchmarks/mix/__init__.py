"""How often the mix of requests is called different, in drawn traffic."""

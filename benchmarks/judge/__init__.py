"""How often and how fast the judge and the rules of others call harm, on the same traffic."""

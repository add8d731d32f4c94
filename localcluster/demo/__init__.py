"""The demonstration: one upgrade that is promoted, and one that is rolled back."""

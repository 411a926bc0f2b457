"""Which decisions share the time, and how much of it each gets."""

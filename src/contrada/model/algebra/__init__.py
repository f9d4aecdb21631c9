"""Value sets, products of them, and the relations between products."""

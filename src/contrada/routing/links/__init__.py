"""Links, link states and shortest paths."""

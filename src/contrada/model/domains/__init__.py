"""Values, and the one line on which the values of all domains lie."""

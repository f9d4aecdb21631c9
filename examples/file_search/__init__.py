"""File search: many peers that share files, and searches that reach those that may have them."""

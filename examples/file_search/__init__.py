"""File search: peers that share files, and searches that reach only possible owners."""

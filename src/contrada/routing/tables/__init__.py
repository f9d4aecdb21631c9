"""Who asked for what, and what of it is forwarded."""

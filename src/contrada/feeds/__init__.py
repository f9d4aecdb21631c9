"""Documents over a service."""

"""Patterns in the network: split, delegated, assembled."""

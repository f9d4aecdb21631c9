"""Falco: files of rules, with macros and lists."""

from contrada.integrations.dialects.falco.falco_rules import filters, read, read_rules

__all__ = ["filters", "read", "read_rules"]

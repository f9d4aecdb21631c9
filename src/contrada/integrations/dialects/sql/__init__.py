"""SQL conditions, as after WHERE, to filter sets and back."""

from contrada.integrations.dialects.sql.sql_reader import filters, read, read_rules
from contrada.integrations.dialects.sql.sql_writer import where

__all__ = ["filters", "read", "read_rules", "where"]

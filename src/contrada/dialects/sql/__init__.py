"""SQL's conditions, as they stand behind WHERE, to filter sets and back."""

from contrada.dialects.sql.reading import filters
from contrada.dialects.sql.rules import read, read_rules
from contrada.dialects.sql.writing import where

__all__ = ["filters", "read", "read_rules", "where"]

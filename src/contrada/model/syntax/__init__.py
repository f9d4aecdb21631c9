"""The text syntax: its grammar, how it is read, how it is printed.

Whoever imports `contrada.model` has it: values of the algebra then read and show themselves.
"""

from contrada.model.algebra import (
    Advertisement,
    Filter,
    FilterSet,
    Pattern,
    Query,
    ValueSet,
    notation,
)
from contrada.model.syntax.parsing import (
    parse,
    parse_advertisement,
    parse_filter,
    parse_filter_set,
    parse_pattern,
    parse_set,
)
from contrada.model.syntax.printing import (
    advertisement_text,
    filter_set_text,
    filter_text,
    name_text,
    pattern_text,
    set_text,
    value_text,
)

__all__ = ["name_text", "parse", "parse_filter", "parse_filter_set", "value_text"]

notation.readers.update(
    {
        Advertisement: parse_advertisement,
        Filter: parse_filter,
        FilterSet: parse_filter_set,
        Pattern: parse_pattern,
        ValueSet: parse_set,
    }
)
notation.writers.update(
    {
        Advertisement: advertisement_text,
        Filter: filter_text,
        FilterSet: filter_set_text,
        Pattern: pattern_text,
        Query: filter_text,
        ValueSet: set_text,
    }
)

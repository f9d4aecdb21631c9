"""The text syntax: its grammar, how it is read, how it is printed.

Whoever imports `contrada.model` has it: values of the algebra then read and show themselves.
"""

from contrada.model.algebra import Advertisement, Filter, FilterSet, Pattern, Query, ValueSet
from contrada.model.algebra.notation import readers, writers
from contrada.model.syntax import parsing, printing
from contrada.model.syntax.parsing import parse, parse_filter, parse_filter_set
from contrada.model.syntax.printing import name_text, value_text

__all__ = ["name_text", "parse", "parse_filter", "parse_filter_set", "value_text"]

readers[Advertisement] = parsing.parse_advertisement
readers[Filter] = parsing.parse_filter
readers[FilterSet] = parsing.parse_filter_set
readers[Pattern] = parsing.parse_pattern
readers[ValueSet] = parsing.parse_set

writers[Advertisement] = printing.advertisement_text
writers[Filter] = writers[Query] = printing.filter_text
writers[FilterSet] = printing.filter_set_text
writers[Pattern] = printing.pattern_text
writers[ValueSet] = printing.set_text

"""The text syntax: its grammar, its parser, its printer.

An import of `contrada.model` makes the values of the algebra parse and print themselves.
"""

from contrada.model.algebra import Advertisement, Filter, FilterSet, Pattern, Query, ValueSet
from contrada.model.algebra.notation import readers, writers
from contrada.model.syntax import parser, printer
from contrada.model.syntax.parser import parse, parse_filter, parse_filter_set
from contrada.model.syntax.printer import name_text, value_text

__all__ = ["name_text", "parse", "parse_filter", "parse_filter_set", "value_text"]

readers[Advertisement] = parser.parse_advertisement
readers[Filter] = parser.parse_filter
readers[FilterSet] = parser.parse_filter_set
readers[Pattern] = parser.parse_pattern
readers[ValueSet] = parser.parse_set

writers[Advertisement] = printer.advertisement_text
writers[Filter] = writers[Query] = printer.filter_text
writers[FilterSet] = printer.filter_set_text
writers[Pattern] = printer.pattern_text
writers[ValueSet] = printer.set_text

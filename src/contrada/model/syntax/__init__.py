"""The text syntax. Its import makes the values of the algebra parse and print themselves."""

from contrada.model.algebra.advertisement import Advertisement, Query
from contrada.model.algebra.filter import Filter, FilterSet
from contrada.model.algebra.notation import parsers, printers
from contrada.model.algebra.pattern import Pattern
from contrada.model.algebra.value_set import ValueSet
from contrada.model.syntax import parser, printer
from contrada.model.syntax.parser import parse, parse_filter, parse_filter_set
from contrada.model.syntax.printer import name_text, value_text

__all__ = ["name_text", "parse", "parse_filter", "parse_filter_set", "value_text"]

parsers[Advertisement] = parser.parse_advertisement
parsers[Filter] = parser.parse_filter
parsers[FilterSet] = parser.parse_filter_set
parsers[Pattern] = parser.parse_pattern
parsers[ValueSet] = parser.parse_set

printers[Advertisement] = printer.advertisement_text
printers[Filter] = printers[Query] = printer.filter_text
printers[FilterSet] = printer.filter_set_text
printers[Pattern] = printer.pattern_text
printers[ValueSet] = printer.set_text

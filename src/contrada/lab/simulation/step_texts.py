"""Parsers of the texts of steps, with caches: made worlds repeat the same texts."""

from functools import lru_cache

from contrada.model import Advertisement, Filter, FilterSet, Pattern
from contrada.model.syntax import parse_filter, parse_filter_set
from contrada.routing.router_messages import Offer


@lru_cache(maxsize=4_096)
def filter_of(text: str) -> Filter:
    """Parses a filter."""
    return parse_filter(text)


@lru_cache(maxsize=4_096)
def filters_of(text: str) -> FilterSet:
    """Parses a set of filters."""
    return parse_filter_set(text)


@lru_cache(maxsize=4_096)
def pattern_of(text: str) -> Pattern:
    """Parses a pattern."""
    return Pattern(text)


@lru_cache(maxsize=4_096)
def advertisement_of(text: str) -> Advertisement:
    """Parses an advertisement."""
    return Advertisement(text)


def offer_of(text: str, *, is_open: bool) -> Offer:
    """Parses an offer; an open one is a filter."""
    return filter_of(text) if is_open else advertisement_of(text)

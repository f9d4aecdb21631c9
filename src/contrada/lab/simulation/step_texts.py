"""What steps say in the text syntax, read once: made worlds say the same things again and again."""

from functools import lru_cache

from contrada.model import Advertisement, Filter, FilterSet, Pattern
from contrada.model.syntax import parse_filter, parse_filter_set
from contrada.routing.router_messages import Offer


@lru_cache(maxsize=4_096)
def filter_of(text: str) -> Filter:
    """The filter that a text says."""
    return parse_filter(text)


@lru_cache(maxsize=4_096)
def filters_of(text: str) -> FilterSet:
    """The filters that a text says."""
    return parse_filter_set(text)


@lru_cache(maxsize=4_096)
def pattern_of(text: str) -> Pattern:
    """The pattern that a text says."""
    return Pattern(text)


@lru_cache(maxsize=4_096)
def advertisement_of(text: str) -> Advertisement:
    """The advertisement that a text says."""
    return Advertisement(text)


def offer_of(text: str, *, is_open: bool) -> Offer:
    """What is offered; an open offer is a filter."""
    return filter_of(text) if is_open else advertisement_of(text)

"""Tables of parsers and printers for the values of the algebra.

The layer `syntax` above fills both, by type, so that nothing here imports it.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

parsers: Final[dict[type, Callable[[str], Any]]] = {}
printers: Final[dict[type, Callable[[Any], str]]] = {}


def parse_as(kind: type[_T], text: str) -> _T:
    """Parses a text as a value of this type. Raises as `syntax.parser`."""
    return parsers[kind](text)  # type: ignore[no-any-return]


def text_of(thing: object) -> str:
    """Returns the text of a thing; it reads as an equal one."""
    return printers[type(thing)](thing)

"""Tables of parsers and printers for the values of the algebra.

The layer `syntax` above fills both tables, by type, when `contrada.model` is imported. So
`Filter(text)` and `str(f)` work, and nothing here imports `syntax`.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

readers: Final[dict[type, Callable[[str], Any]]] = {}
writers: Final[dict[type, Callable[[Any], str]]] = {}


def read(kind: type[_T], text: str) -> _T:
    """Parses a text as a value of this type. Raises as `syntax.parser`."""
    return readers[kind](text)  # type: ignore[no-any-return]


def written(thing: object) -> str:
    """Returns the text of a thing; it reads as an equal one."""
    return writers[type(thing)](thing)

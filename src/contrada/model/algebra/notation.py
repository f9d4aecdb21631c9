"""How values of the algebra are read from text and written as text.

`syntax` stands above the algebra and fills in both tables, by type, when `contrada.model` is
imported. So a filter can be made of its text and shows itself, and nothing here imports `syntax`.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

readers: Final[dict[type, Callable[[str], Any]]] = {}
writers: Final[dict[type, Callable[[Any], str]]] = {}


def read(kind: type[_T], text: str) -> _T:
    """What a text says, of the kind expected. Raises what `syntax.parsing` raises."""
    return readers[kind](text)  # type: ignore[no-any-return]


def written(thing: object) -> str:
    """Returns the text of a thing; it reads as an equal one."""
    return writers[type(thing)](thing)

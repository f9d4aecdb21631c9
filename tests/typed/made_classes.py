"""`made_class`: an event class of given fields; `Unresolved`: a function without a signature."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contrada.typed import Obvent


class Unresolved:
    """A function as Python 3.14 sees it if only type checkers know a name in its annotations."""

    @property
    def __signature__(self) -> object:
        raise NameError("name 'Market' is not defined")

    def __call__(self, given: Any) -> bool:
        return bool(given.price > 1)


def made_class(
    name: str, fields: Mapping[str, Any], namespace: Mapping[str, Any], base: type = Obvent
) -> Any:
    """Returns a dataclass whose fields its base sees.

    Since Python 3.14 classes of `make_dataclass` have none when they are made.
    """
    return dataclass(type(name, (base,), {**namespace, "__annotations__": {**fields}}))

"""`made_class`: an event class of given fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contrada.typed import Obvent


def made_class(
    name: str, fields: Mapping[str, Any], namespace: Mapping[str, Any], base: type = Obvent
) -> Any:
    """Returns a dataclass whose fields its base sees.

    Since Python 3.14 classes of `make_dataclass` have none when they are made.
    """
    return dataclass(type(name, (base,), {**namespace, "__annotations__": {**fields}}))

"""Attributes as they are written on a command line: `name=value`.

A value is read as in a filter where it can be (`12.5`, `true`, `null`, `"12"`, `x"0aff"`,
`@2026-11-20T09:30:00Z`), and is plain text otherwise. A name that is given several times has
several values.
"""

import re
from collections.abc import Iterable
from typing import Final

from contrada.errors import ContradaError, InputError
from contrada.model import Filter, Value
from contrada.model.domains.values import value_of

_NAME: Final = "value"
_DATED: Final = re.compile(r"@\d{4}-\d")


def literal(text: str) -> Value:
    """The value that a text writes; itself when it is no literal.

    Raises InputError for what looks like a time but is none.
    """
    if "\n" in text:
        return text
    try:
        # Both at once: what is longer than one literal fits one of the two places at most. And a
        # comment would have no end.
        value_set = Filter(f"{_NAME} in ({text}) and {_NAME} = {text}").sets[_NAME]
    except ContradaError:
        if _DATED.match(text):
            reason = (
                f"found {text!r}, expected a time as @2026-11-20T09:30:00Z, or a text in quotes"
            )
            raise InputError("argument", reason) from None
        return text
    key = value_set.some_key()
    return text if key is None else value_of(key)


def named_text(pair: str, source: str, *, empty: bool = False) -> tuple[str, str]:
    """Name and text of `NAME=VALUE`. Raises InputError, with where it stood, for what is none.

    With `empty` the name may be, as that of a column that has none.
    """
    name, equals, text = pair.partition("=")
    if not equals or not (name or empty):
        raise InputError(source, f"found {pair!r}, expected NAME=VALUE")
    return name, text


def attributes_of(pairs: Iterable[str]) -> dict[str, Value | list[Value]]:
    """The attributes of `name=value` arguments. Raises InputError for one that is none."""
    found: dict[str, list[Value]] = {}
    for pair in pairs:
        name, text = named_text(pair, "argument")
        found.setdefault(name, []).append(literal(text))
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}

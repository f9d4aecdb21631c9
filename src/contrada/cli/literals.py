"""Attributes as arguments of a command: `name=value`.

A value is parsed as in a filter if possible (`12.5`, `true`, `null`, `"12"`, `x"0aff"`,
`@2026-11-20T09:30:00Z`), and is plain text otherwise. A repeated name has several values.
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
    """Returns the value of a literal, or the text itself.

    Raises InputError for a malformed time.
    """
    if "\n" in text:
        return text
    try:
        # In both places at once: a text longer than one literal fits at most one of them. The
        # line break ends a comment.
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
    """Splits `NAME=VALUE`. Raises InputError, with its place, for other text.

    With `empty` the name may be empty, like that of an unnamed column.
    """
    name, equals, text = pair.partition("=")
    if not equals or not (name or empty):
        raise InputError(source, f"found {pair!r}, expected NAME=VALUE")
    return name, text


def attributes_of(pairs: Iterable[str]) -> dict[str, Value | list[Value]]:
    """Returns the attributes of `name=value` arguments. Raises InputError for other text."""
    found: dict[str, list[Value]] = {}
    for pair in pairs:
        name, text = named_text(pair, "argument")
        found.setdefault(name, []).append(literal(text))
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}

"""`fill_templates`: the rights of a group for one user: `{user}` becomes the user's name.

    publish = "device = {user} and kind in ('state', {user})"     # a filter: a whole value
    durable = ["{user}", "alarms/{user}"]                         # a name: a part of it

In a filter, `{user}` is replaced by a text, and only behind `=`, `!=` and in a list: there a text
is an exact value, whatever characters a name has. Behind other operators a name would be a pattern,
or the beginning of other names. In a name it is replaced as it is: names of users have no `/` and
`*`.
"""

import re
from typing import Final

from contrada.errors import InputError

USER: Final = "{user}"

_TOKEN: Final = re.compile(
    r"""\s+|(?<!\S)\#[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\n]|``)*`"""
    r"|/(?:[^/\\\n]|\\.)*/|\{user\}|[\w.\-/:@$#]+|!=|.",
    re.DOTALL,
)
"""A part of a filter as its grammar sees it, so that nothing inside a literal is replaced."""

_BEFORE: Final = {"=", "!=", "(", ","}


def fill_templates(filters: bool | str | list[str], user: str) -> bool | str | list[str]:
    """Returns filters with `{user}` replaced. Raises InputError where it is no exact value."""
    if isinstance(filters, bool):
        return filters
    if isinstance(filters, str):
        return _fill(filters, user)
    return [_fill(each, user) for each in filters]


def fill_names(names: list[str] | None, user: str) -> list[str] | None:
    """Returns names with `{user}` replaced."""
    return None if names is None else [each.replace(USER, user) for each in names]


def _fill(template: str, user: str) -> str:
    filled, before = [], ""
    for token in _TOKEN.findall(template):
        if token == USER:
            if before not in _BEFORE:
                expected = f"expected {USER} as a value behind =, != or in a list"
                raise InputError("filter", f"{template!r}: found it behind {before!r}, {expected}")
            # In hexadecimal: no character of a name is ever read as a part of the filter.
            filled.append(f'x"{user.encode().hex()}"')
        elif USER in token:
            raise InputError("filter", f"{template!r}: write {USER} without quotes: it is a value")
        else:
            filled.append(token)
        if not token.isspace():
            before = token
    return "".join(filled)

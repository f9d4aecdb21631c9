"""`fill_templates`: the rights of a group for one user: `{user}` becomes the user's name.

    publish = "device = {user} and kind in ('state', {user})"     # a filter: a whole value
    durable = ["{user}", "alarms/{user}"]                         # a name: a part of it

In a filter, `{user}` is replaced by a text, and only behind `=`, `!=` and in a list: there a text
is an exact value, whatever characters a name has. Behind other operators a name would be a pattern,
or the beginning of other names. In a name it is replaced as it is: names of users have no `/` and
`*`.
"""

import re
from functools import lru_cache
from typing import Final

from contrada.errors import InputError, ParseError

USER: Final = "{user}"

TEMPLATES_KEPT_MAX: Final = 256
"""Templates that are known to be good. Beyond it: the least recently used is parsed again."""

_STAND_IN: Final = "271828"
"""A value in place of `{user}`, as long as it: so places in the text are those in the template."""


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
    if USER in template:
        _check(template)
    # In hexadecimal: no character of a name is ever read as a part of the filter.
    return template.replace(USER, f'x"{user.encode().hex()}"')


@lru_cache(TEMPLATES_KEPT_MAX)
def _check(template: str) -> None:
    """Raises InputError unless each `{user}` is an exact value."""
    from contrada.model.syntax.filter_builder import exact_values  # lark takes its time

    expected = f"expected {USER} as a value behind =, != or in a list, without quotes or nocase"
    try:
        values = [*exact_values(template.replace(USER, _STAND_IN))]
    except ParseError as error:
        is_user = template.split("\n")[error.line - 1].startswith(USER, error.column - 1)
        reason = expected if is_user else str(error)
        raise InputError("filter", f"{template!r}: {reason}") from None
    exact = {value.start_pos for value in values if value == _STAND_IN}
    if any(found.start() not in exact for found in re.finditer(re.escape(USER), template)):
        raise InputError("filter", f"{template!r}: {expected}")

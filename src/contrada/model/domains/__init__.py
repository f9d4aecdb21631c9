"""Values of seven domains, and the one line on which all of them lie.

`values` has keys, the places of values on the line; `line` has sets of keys.
"""

from contrada.model.domains.line import Cut, Cuts, HalfOpen
from contrada.model.domains.values import (
    Key,
    Value,
    check_name,
    check_user_name,
    datetime_of,
    is_system_name,
    key_of,
    time_us_of,
    value_of,
)

__all__ = [
    "Cut",
    "Cuts",
    "Key",
    "HalfOpen",
    "Value",
    "check_name",
    "check_user_name",
    "datetime_of",
    "is_system_name",
    "key_of",
    "time_us_of",
    "value_of",
]

"""What the author of a Sigma rule says of it, beside what the rule asks for.

Source: Sigma specification 2.1.0; Detection Rule License 1.1 (author and title go with a rule and
with what it has matched).
"""

from collections.abc import Mapping
from typing import Any, Final

ABOUT: Final = ("title", "author", "level", "tags", "license")
"""What is kept of a rule."""


def about(document: Mapping[Any, Any]) -> dict[str, str | list[str]]:
    """What the author says of a rule, so far as it is said in texts and lists of texts."""
    found: dict[str, str | list[str]] = {}
    for key in ABOUT:
        value = document.get(key)
        if isinstance(value, list):
            found[key] = [str(each) for each in value if isinstance(each, str | int | float)]
        elif isinstance(value, str | int | float):
            found[key] = str(value)
    return found

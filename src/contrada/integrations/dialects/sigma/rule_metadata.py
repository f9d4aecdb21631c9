"""`about`: the author's description of a Sigma rule.

Source: Sigma specification 2.1.0; Detection Rule License 1.1 (author and title accompany a rule and
its matches).
"""

from collections.abc import Mapping
from typing import Any, Final

ABOUT: Final = ("title", "author", "level", "tags", "license")
"""The keys that are kept."""


def about(document: Mapping[Any, Any]) -> dict[str, str | list[str]]:
    """Returns the texts and lists of texts of the description."""
    found: dict[str, str | list[str]] = {}
    for key in ABOUT:
        value = document.get(key)
        if isinstance(value, list):
            found[key] = [str(each) for each in value if isinstance(each, str | int | float)]
        elif isinstance(value, str | int | float):
            found[key] = str(value)
    return found

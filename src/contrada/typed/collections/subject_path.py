"""`Subject`: a path of names that classifies obvents and notifications.

A subject is the attribute `@subject` of notifications, a text that ends in a slash:
`/Chat/Insomnia/`. So a subject with all nested subjects is one prefix, and covering in the algebra
is nesting of subjects. `/Chat/*/en` matches any one name at `*`.

Source: EPFL 2503 §4.7.1, §3.7.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from contrada.errors import InvalidValueError, LimitError
from contrada.model import Filter, Notification
from contrada.model.algebra.sets import eq, matches, prefix

SUBJECT: Final = "@subject"
"""The attribute with the subject of a notification."""

SUBJECT_CHARS_MAX: Final = 512
"""Characters of a subject. Beyond it: LimitError."""

_ANY: Final = "*"
_SPECIAL: Final = frozenset("\\^$.|?*+()[]{}/")


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject to subscribe; with `nested`, all nested subjects are included.

    `/` is the root: everything with a subject. Raises InvalidValueError, LimitError.

    Source: EPFL 2503 §4.7.1 (subjects contain their nested subjects; the abstract subject).
    """

    path: str
    nested: bool = True

    def __post_init__(self) -> None:
        given: object = self.path
        if not isinstance(given, str) or not given.startswith("/") or not given.isprintable():
            raise InvalidValueError(given, "expected a subject, for example '/Chat/Insomnia'")
        if len(given) > SUBJECT_CHARS_MAX:
            raise LimitError("SUBJECT_CHARS_MAX", SUBJECT_CHARS_MAX, len(given))
        names = given.strip("/").split("/") if given != "/" else []
        for name in names:
            if not name or (_ANY in name and name != _ANY):
                reason = f"{name!r} is no name in a subject: not empty, and `*` is a whole name"
                raise InvalidValueError(given, reason)
        object.__setattr__(self, "path", "/" + "/".join(names))

    @property
    def is_one(self) -> bool:
        """Whether it names one subject, under which elements can be published."""
        return self.path != "/" and not self._is_wild

    @property
    def text(self) -> str:
        """The value of `@subject` of elements published under it. Raises InvalidValueError."""
        if not self.is_one:
            reason = "nothing is published under it: it is more than one subject"
            raise InvalidValueError(self.path, reason)
        return self.path + "/"

    def to_filters(self) -> Filter:
        """Returns the filter of elements published under it; one constraint."""
        start = self.path.rstrip("/") + "/"
        if self._is_wild:
            names = (
                "[^/]+" if it == _ANY else "".join("\\" + c if c in _SPECIAL else c for c in it)
                for it in start.strip("/").split("/")
            )
            pattern = "^/" + "/".join(names) + "/"
            return Filter({SUBJECT: matches(pattern if self.nested else pattern + "$")})
        return Filter({SUBJECT: prefix(start) if self.nested else eq(start)})

    def from_notification(self, notification: Notification) -> Notification:
        """Returns the notification itself: a subject does not determine a class."""
        return notification

    def __str__(self) -> str:
        return self.path

    @property
    def _is_wild(self) -> bool:
        return _ANY in self.path.split("/")


def subject_of(attributes: Mapping[str, Any]) -> str:
    """Returns the path of the only subject in attributes; "" for none or several."""
    found = attributes.get(SUBJECT, "")
    return found.rstrip("/") if isinstance(found, str) else ""

"""Unification: the operator `unifies` reads text as a term and tests whether two can be made equal.

A value that is no term, or is beyond the limits of `terms`, does not match; such a constant is
refused. `unifies a` covers `unifies b` exactly when `match(a, b)`: a substitution of a's variables
alone gives b. One way: every term that unifies with b then unifies with a. The other way: take b
with each variable replaced by a new name; this value unifies with b, so it must with a, and the
names turned back into variables give the substitution. Any two `unifies` intersect, since a
variable alone, as a value, unifies with every term.

Source: CU-CS-946-03 §7.2, figures 5 to 7, equation 1.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from contrada.errors import InvalidFilterError, LimitError, ParseError
from contrada.model.extensions.extended_type import ExtendedOperator, ExtendedType
from contrada.model.extensions.terms import TERM_BYTES_MAX, Term, decode, match, unify
from contrada.model.languages.atoms import Atom
from contrada.model.languages.work_budget import spend

_READING_WORK: Final = 15  # Steps of work for each byte of a parsed term
_UNIFYING_WORK: Final = 4  # And for each byte of two terms that are unified

TERMS_CACHED_MAX: Final = 4_096
"""Terms kept, by their text. Beyond it: the least recently used is read again."""


class Unifies(ExtendedOperator):
    """Terms that unify with the constant. Source: CU-CS-946-03 §7.2."""

    name = "unifies"

    def check(self, constant: bytes) -> None:
        try:
            _term(constant)
        except (ParseError, LimitError) as error:
            raise InvalidFilterError(self.name, (constant,), str(error)) from None

    def apply(self, value: bytes, constant: bytes) -> bool:
        """See the class. Cost: nearly linear in both terms. Source: CU-CS-946-03 figure 6."""
        try:
            one, other = _term(constant), _term(value)
            spend(_UNIFYING_WORK * (len(constant) + len(value)))
            return unify(one, other) is not None
        except (ParseError, LimitError):
            return False

    def covers(self, constant: bytes, other: Atom) -> bool | None:
        """Exact for another `unifies`. Source: CU-CS-946-03 §7.2, equation 1."""
        if other.operator != self.name:
            return None
        return match(_term(constant), _term(other.constant)) is not None

    def intersects(self, constant: bytes, other: Atom) -> bool | None:
        """True for another `unifies`: the value `_X` satisfies both."""
        return True if other.operator == self.name else None


class UnifyType(ExtendedType):
    """Functional expressions in text. Source: CU-CS-946-03 §7.2 and figure 10 (UnifyType)."""

    name = "Unify"

    def operators(self) -> Sequence[ExtendedOperator]:
        return (Unifies(),)


@lru_cache(maxsize=TERMS_CACHED_MAX)
def _term(serialised: bytes) -> Term:
    if len(serialised) <= TERM_BYTES_MAX:  # A longer one is refused unread.
        spend(_READING_WORK * len(serialised))
    return decode(serialised)

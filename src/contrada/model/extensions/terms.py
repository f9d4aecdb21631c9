"""`Term`: functional expressions with variables; their text, unification and matching. `Unifies`:
the operator that reads text as a term and tests whether two can be made equal.

A term is a number, a string, a variable or a function of terms (without arguments: a name).
Variables are local to their expression. This project defines the points that the grammar leaves
open: numbers are equal by value (`5`, `+5` and `05` are one; `5.0` is no term); a number, a string
and a name are never equal; a variable never equals a term that contains it (occurs check).

A value that is no term, or is beyond the limits, does not match; such a constant is refused.
`unifies a` covers `unifies b` exactly when `match(a, b)`: a substitution of a's variables alone
gives b. One way: every term that unifies with b then unifies with a. The other way: take b with
each variable replaced by a new name; this value unifies with b, so it must with a, and the names
turned back into variables give the substitution. Any two `unifies` intersect, since a variable
alone, as a value, unifies with every term.

Source: CU-CS-946-03 §7.2, figures 5 to 7, table 2, equation 1.
"""

import pkgutil
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from contrada.errors import InvalidFilterError, LimitError, ParseError
from contrada.model.extensions.extended_type import ExtendedOperator, ExtendedType
from contrada.model.languages.atoms import Atom
from contrada.model.languages.work_budget import spend

if TYPE_CHECKING:
    from lark import Lark, Token

TERM_BYTES_MAX: Final = 16_384
"""Bytes of a term. Beyond it: a constant is refused, a value does not match."""

TERM_DEPTH_MAX: Final = 100
"""Functions within functions. Beyond it: a constant is refused, a value does not match."""

_READING_WORK: Final = 15  # Steps of work for each byte of a parsed term
_UNIFYING_WORK: Final = 4  # And for each byte of two terms that are unified

TERMS_CACHED_MAX: Final = 4_096
"""Terms kept, by their text. Beyond it: the least recently used is read again."""

_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number of any size, as its shortest digits with `-` if it is negative."""

    digits: str

    def __str__(self) -> str:
        return self.digits


@dataclass(frozen=True, slots=True)
class String:
    """A text constant."""

    text: str

    def __str__(self) -> str:
        escaped = self.text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable; `side` distinguishes those of two expressions that are unified."""

    name: str
    side: int = 0

    def __str__(self) -> str:
        return f"_{self.name}"


@dataclass(frozen=True, slots=True)
class Function:
    """A name with arguments, or alone. Raises LimitError deeper than `TERM_DEPTH_MAX`."""

    name: str
    arguments: tuple["Term", ...] = ()
    depth: int = field(init=False, compare=False, repr=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        inner = (term.depth for term in self.arguments if isinstance(term, Function))
        depth = 1 + max(inner, default=0)
        if depth > TERM_DEPTH_MAX:
            raise LimitError("TERM_DEPTH_MAX", TERM_DEPTH_MAX)
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "_hash", hash((self.name, self.arguments)))

    def __hash__(self) -> int:  # kept, so that it costs no walk through the term each time
        return self._hash

    def __str__(self) -> str:
        return f"{self.name}({','.join(map(str, self.arguments))})" if self.arguments else self.name


Term: TypeAlias = Number | String | Variable | Function


def encode(term: Term) -> bytes:
    """Returns the text of a term, in pre-order. Source: CU-CS-946-03 §7.2 (serialization)."""
    return str(term).encode()


def parse_term(text: str) -> Term:
    """Parses a term. Raises ParseError, and LimitError for its size or depth. Cost: linear."""
    from lark import UnexpectedCharacters, UnexpectedToken  # Not before: lark loads slowly.

    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ParseError(1, error.start + 1, "a lone surrogate", "a term") from None
    if size > TERM_BYTES_MAX:
        raise LimitError("TERM_BYTES_MAX", TERM_BYTES_MAX, size)
    try:
        return _parser().parse(text)  # type: ignore[return-value]
    except UnexpectedToken as error:
        at_end = error.token.type == "$END"
        found = "the end of the text" if at_end else repr(str(error.token))
        raise ParseError(max(error.line, 1), max(error.column, 1), found, "a term") from None
    except UnexpectedCharacters as error:
        found = repr(text[error.pos_in_stream :][:20])
        raise ParseError(error.line, error.column, found, "a term") from None


def decode(serialised: bytes) -> Term:
    """Decodes a term. Raises ParseError, LimitError as `parse_term`."""
    try:
        return parse_term(serialised.decode())
    except UnicodeDecodeError as error:
        raise ParseError(1, error.start + 1, "bytes that are not UTF-8", "a term") from None


@cache
def _parser() -> "Lark":
    from lark import Lark, Transformer, v_args

    @v_args(inline=True)
    class _TermBuilder(Transformer["Token", Term]):
        """Makes terms, bottom up, while lark parses."""

        def unifyterm(self, name: "Token", *arguments: Term | None) -> Term:
            return Function(str(name), tuple(term for term in arguments if term is not None))

        def number(self, token: "Token") -> Term:
            digits = token.lstrip("+-").lstrip("0") or "0"
            return Number(f"-{digits}" if token[0] == "-" and digits != "0" else digits)

        def string(self, token: "Token") -> Term:
            return String(_ESCAPE.sub(r"\1", token[1:-1]))

        def variable(self, token: "Token") -> Term:
            return Variable(str(token[1:]))

    grammar = pkgutil.get_data(__name__, "unify.lark")
    assert grammar is not None
    return Lark(grammar.decode(), start="unifyexpr", parser="lalr", transformer=_TermBuilder())


def unify(a: Term, b: Term) -> dict[Variable, Term] | None:
    """Returns the values of the variables that make the two terms equal, or None.

    The variables of b have `side` 1. A value may hold variables of both sides, with values of their
    own.

    Terms are joined as graphs, class by class, and the occurs check is made once at the end, so the
    cost is nearly linear for every pair of terms.

    Source: CU-CS-946-03 §7.2, table 2.
    """
    classes = _Classes()
    waiting: list[tuple[Term, Term]] = [(a, on_side(b, 1))]
    while waiting:
        first, second = map(classes.find, waiting.pop())
        if first == second:
            continue
        if isinstance(first, Variable):
            classes.join(first, second)
        elif isinstance(second, Variable):
            classes.join(second, first)
        elif (
            isinstance(first, Function)
            and isinstance(second, Function)
            and first.name == second.name
            and len(first.arguments) == len(second.arguments)
        ):
            classes.join(first, second)
            waiting += zip(first.arguments, second.arguments, strict=True)
        else:
            return None
    return None if classes.is_cyclic() else classes.assignment()


def match(a: Term, b: Term) -> dict[Variable, Term] | None:
    """Returns the substitution of a's variables that gives b, or None.

    One-way unification, with b's variables as constants: if there is one, a is at least as general
    as b. Cost: linear.

    Source: CU-CS-946-03 §7.2, figure 7 (unifies1), without its "variable equivalencing", by which
    `f(_X,_X)` would be as general as `f(_Y,_Z)`.
    """
    substitution: dict[Variable, Term] = {}
    waiting: list[tuple[Term, Term]] = [(a, b)]
    while waiting:
        general, special = waiting.pop()
        if isinstance(general, Variable):
            if substitution.setdefault(general, special) != special:
                return None
        elif isinstance(general, Function) and isinstance(special, Function):
            if general.name != special.name or len(general.arguments) != len(special.arguments):
                return None
            waiting += zip(general.arguments, special.arguments, strict=True)
        elif general != special:
            return None
    return substitution


def on_side(term: Term, side: int) -> Term:
    """Returns the term with its variables on this side."""
    if isinstance(term, Variable):
        return Variable(term.name, side)
    if isinstance(term, Function) and term.arguments:
        return Function(term.name, tuple(on_side(each, side) for each in term.arguments))
    return term


class _Classes:
    """Terms joined into classes; one represents a class, a variable only if it has nothing else."""

    def __init__(self) -> None:
        self._next: dict[Term, Term] = {}

    def find(self, term: Term) -> Term:
        """Returns the representative of a term's class."""
        known = term
        while (following := self._next.get(known)) is not None:
            known = following
        while (following := self._next.get(term, known)) != known:
            self._next[term] = known
            term = following
        return known

    def join(self, one: Term, other: Term) -> None:
        self._next[one] = other

    def is_cyclic(self) -> bool:
        """Whether a term would have to contain itself."""
        done: set[Term] = set()
        for start in self._next:
            path: dict[Term, Iterator[Term]] = {}
            self._enter(start, path)
            while path:
                below = next(next(reversed(path.values())), None)
                if below is None:
                    done.add(path.popitem()[0])
                    continue
                known = self.find(below)
                if known in path:
                    return True
                if known not in done:
                    self._enter(known, path)
        return False

    def assignment(self) -> dict[Variable, Term]:
        """Returns the term of each variable that has another value than itself."""
        return {term: self.find(term) for term in self._next if isinstance(term, Variable)}

    def _enter(self, term: Term, path: dict[Term, Iterator[Term]]) -> None:
        known = self.find(term)
        path[known] = iter(known.arguments if isinstance(known, Function) else ())


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

"""Terms: functional expressions with variables, unification and matching. See `term_parser`, too.

A term is a number, a string, a variable or a function of terms (without arguments: a name).
Variables are local to their expression. This project defines the points that the grammar leaves
open: numbers are equal by value (`5`, `+5` and `05` are one; `5.0` is no term); a number, a string
and a name are never equal; a variable never equals a term that contains it (occurs check).

Source: CU-CS-946-03 §7.2, figure 5, table 2, figure 7.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from contrada.errors import LimitError

TERM_DEPTH_MAX: Final = 100
"""Functions within functions. Beyond it: a constant is refused, a value does not match."""


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
        """Joins two classes, represented by the second term."""
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

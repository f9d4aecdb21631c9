"""Sets of text as Boolean expressions over intervals and atoms.

The normal form: negation only at atoms, no `Every` directly in an `Every` nor `Some` in a `Some`,
at most one `Pieces` per node, parts sorted and distinct, no part that another part of the same node
makes redundant. Nodes are plain tuples, so that they compare, sort and hash by form; two forms of
one language may still differ (see `decision` for equality of languages).
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from contrada.errors import LimitError
from contrada.model.domains import line
from contrada.model.domains.line import ALL_TEXT, EMPTY, Cuts
from contrada.model.domains.values import TEXT
from contrada.model.languages.atoms import Atom, failures, registry
from contrada.model.languages.work_budget import spend

NESTING_MAX: Final = 50
"""Alternations of `and` and `or` within one expression on text. Beyond it: LimitError."""


_SHORT: Final = 250
"""Bytes of a text that an operator reads in a step of work; a shorter one counts for none."""


class Pieces(NamedTuple):
    """Text intervals."""

    cuts: Cuts
    rank: int = 0


class Literal(NamedTuple):
    """The texts that an atom accepts, or all other texts."""

    atom: Atom
    positive: bool
    rank: int = 1


class Every(NamedTuple):
    """The texts in all parts."""

    parts: tuple["Language", ...]
    rank: int = 2


class Some(NamedTuple):
    """The texts in at least one part."""

    parts: tuple["Language", ...]
    rank: int = 3


Language: TypeAlias = Pieces | Literal | Every | Some

NO_TEXT: Final = Pieces(EMPTY)
ANY_TEXT: Final = Pieces(ALL_TEXT)


def contains(language: Language, text: bytes) -> bool:
    """Whether the text is in the language: exact, and no automaton is built.

    An `apply` that raises, or does not return True or False, counts as not holding (so its negation
    holds), and is counted in `failures`. An unknown operator raises UnknownOperatorError.
    """
    if isinstance(language, Literal):
        return applies(language.atom, text) is language.positive
    if isinstance(language, Pieces):
        return line.holds(language.cuts, (TEXT, text))
    if isinstance(language, Every):
        return all(contains(part, text) for part in language.parts)
    return any(contains(part, text) for part in language.parts)


def applies(atom: Atom, text: bytes) -> bool:
    """Whether the atom accepts the text. See `contains` for operators that fail."""
    operator = registry.get(atom.operator)
    if len(text) > _SHORT:
        spend(len(text) // _SHORT)
    try:
        answer = operator.apply(text, atom.constant)
    except Exception:  # noqa: BLE001  extension code may raise anything
        answer = None
    if answer is True or answer is False:
        return answer
    failures.add(atom.operator)
    return False


def every(parts: Iterable[Language]) -> Language:
    """Returns the texts in all languages, in normal form."""
    return _join(parts, Every)


def some(parts: Iterable[Language]) -> Language:
    """Returns the texts in at least one language, in normal form."""
    return _join(parts, Some)


def negation(language: Language) -> Language:
    """Returns all other texts, in normal form."""
    if isinstance(language, Pieces):
        return Pieces(line.intersection(line.complement(language.cuts), ALL_TEXT))
    if isinstance(language, Literal):
        return Literal(language.atom, not language.positive)
    dual = some if isinstance(language, Every) else every
    return dual(negation(part) for part in language.parts)


def atoms_of(language: Language) -> Iterator[Atom]:
    """Yields the atoms in the expression, in order, with repeats."""
    if isinstance(language, Literal):
        yield language.atom
    elif not isinstance(language, Pieces):
        for part in language.parts:
            yield from atoms_of(part)


def size_of(language: Language) -> int:
    """Returns the number of cuts, atoms and nodes: about the cost of a walk through it."""
    if isinstance(language, Pieces):
        return 1 + len(language.cuts) // 8
    return 1 if isinstance(language, Literal) else 1 + sum(map(size_of, language.parts))


def depth(language: Language) -> int:
    """Returns the nesting depth of `Every` and `Some`."""
    if isinstance(language, Pieces | Literal):
        return 0
    return 1 + max(depth(part) for part in language.parts)


def sort_key(language: Language) -> tuple[object, ...]:
    """Returns a key that sorts nodes of all kinds."""
    if isinstance(language, Every | Some):
        return (language.rank, tuple(sort_key(part) for part in language.parts))
    return (language.rank, *language[:-1])


def _join(parts: Iterable[Language], node: type[Every] | type[Some]) -> Language:
    """Returns the normal form of a conjunction or, dually, of a disjunction."""
    nothing, all_idle = (NO_TEXT, ANY_TEXT) if node is Every else (ANY_TEXT, NO_TEXT)
    join = line.intersection if node is Every else line.union
    pieces: list[Cuts] = [all_idle.cuts]
    rest: dict[Language, None] = {}
    for given in parts:
        for part in given.parts if isinstance(given, node) else (given,):
            if isinstance(part, Pieces):
                pieces.append(part.cuts)
            else:
                rest[part] = None
    cuts = line.join_all(join, pieces)
    literals = [part for part in rest if isinstance(part, Literal)]
    if cuts == nothing.cuts or any(Literal(a, not positive) in rest for a, positive, _ in literals):
        return nothing
    if cuts != all_idle.cuts:
        rest[Pieces(cuts)] = None
    # Absorption: x & (x | y) is x, and dually.
    dual = Some if node is Every else Every
    kept = [
        part
        for part in rest
        if not (isinstance(part, dual) and any(inner in rest for inner in part.parts))
    ]
    if len(kept) <= 1:
        return kept[0] if kept else all_idle
    joined = node(tuple(sorted(kept, key=sort_key)))
    if depth(joined) > NESTING_MAX:
        raise LimitError("NESTING_MAX", NESTING_MAX)
    return joined

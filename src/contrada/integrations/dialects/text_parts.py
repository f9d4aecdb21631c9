"""`text_parts`: the text of a value set as plain operators, for dialects that write filters.

Equal sets can have many forms, and adjacent intervals of text are merged. This module splits a set
into parts that dialects have: single texts, prefixes, and operators on text.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from contrada.model.algebra.value_set import ValueSet
from contrada.model.domains import line
from contrada.model.domains.line import Cut
from contrada.model.domains.values import TEXT
from contrada.model.languages.language import Literal, Pieces, Some

INTERVAL_PARTS_MAX: Final = 64
"""Prefixes and texts that an interval is split into. Beyond it: the filter is refused."""


class TextPart(NamedTuple):
    """An operator, `=`, `prefix` or that of an atom, and its constant."""

    operator: str
    text: str


class NoPartsError(Exception):
    """The text of a set is no union of such parts. It never leaves the dialects."""


def text_parts(values: ValueSet) -> list[TextPart]:
    """Returns parts whose union is the text of a set. Cost: its automaton. Raises NoPartsError."""
    try:
        return list(_parts(values))
    except NoPartsError:
        return list(_parts(values.canonical()))


def _parts(values: ValueSet) -> Iterator[TextPart]:
    _, language = values.parts()
    for part in language.parts if isinstance(language, Some) else (language,):
        if isinstance(part, Pieces):
            for start, end in line.pieces(part.cuts):
                yield from _interval(start, end)
        elif isinstance(part, Literal) and part.positive:
            yield TextPart(part.atom.operator, _decode(part.atom.constant))
        else:
            raise NoPartsError


def _interval(start: Cut, end: Cut | None) -> Iterator[TextPart]:
    text = line.first_key(start)[1]
    for _ in range(INTERVAL_PARTS_MAX):
        assert isinstance(text, bytes)
        whole = line.starting_with(text)
        prefix_end = whole[1] if len(whole) == 2 else None
        if prefix_end is None and end is None:
            yield TextPart("prefix", _decode(text))
            return
        if prefix_end is not None and (end is None or prefix_end <= end):
            yield TextPart("prefix", _decode(text))
            following = prefix_end
        else:
            yield TextPart("=", _decode(text))
            following = line.cut_after((TEXT, text))
        if following == end:
            return
        text = line.first_key(following)[1]
    raise NoPartsError


def _decode(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise NoPartsError from None

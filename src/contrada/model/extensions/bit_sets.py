"""Bit sets: three operators that read text as a set of bits.

Bit 7 to bit 0 of each byte, byte after byte. The shorter of two texts is extended with zero bytes,
so that trailing zero bytes never matter. For a constant T a text S satisfies

- `set<=` when every bit of S is in T,
- `set>=` when every bit of T is in S,
- `set~` when S and T have a bit in common.

All three are regular, so that they are decided exactly; the paper has a table of special cases
instead. The automata (for a constant of two bytes, without trailing zero bytes) are minimal:

    set<=   (0) --⊆ T[0]--> (1) --⊆ T[1]--> (2) --zero--> (2)    otherwise dead
    set>=    0  --⊇ T[0]-->  1  --⊇ T[1]--> (2) --any---> (2)    otherwise dead
    set~     0  --∩ T[0] = ∅--> 1 --∩ T[1] = ∅--> dead           otherwise (hit) --any--> (hit)

Source: CU-CS-946-03 §7.1, figures 3 and 4, appendix §9.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import TypeAlias

from contrada.errors import LimitError
from contrada.model.extensions.extended_type import ExtendedOperator, ExtendedType
from contrada.model.languages.automaton import STATES_MAX, Automaton

_ByteTest: TypeAlias = Callable[[int, int], bool]
"""Whether a byte of the value passes a byte of the constant."""


class SetLessEqual(ExtendedOperator):
    """Texts with bits of the constant only. Source: CU-CS-946-03 §7.1, figures 3 and 4."""

    name = "set<="

    def apply(self, value: bytes, constant: bytes) -> bool:
        bits = _bits(value)
        return bits & _bits(constant) == bits

    def automaton(self, constant: bytes) -> Automaton:
        """Returns an automaton with one state per byte of the constant, and two."""
        return _chain(constant, lambda byte, of: byte & ~of == 0, (True, True, False), zeros=True)


class SetGreaterEqual(ExtendedOperator):
    """Texts that have every bit of the constant. Source: CU-CS-946-03 §7.1."""

    name = "set>="

    def apply(self, value: bytes, constant: bytes) -> bool:
        bits = _bits(constant)
        return bits & _bits(value) == bits

    def automaton(self, constant: bytes) -> Automaton:
        """Returns an automaton with at most one state per byte of the constant, and two."""
        return _chain(constant, lambda byte, of: of & ~byte == 0, (False, True, False))


class SetIntersect(ExtendedOperator):
    """Texts that have a bit in common with the constant. Source: CU-CS-946-03 §7.1."""

    name = "set~"

    def apply(self, value: bytes, constant: bytes) -> bool:
        return _bits(value) & _bits(constant) != 0

    def automaton(self, constant: bytes) -> Automaton:
        """Returns an automaton with at most one state per byte of the constant, and two."""
        return _chain(constant, lambda byte, of: byte & of == 0, (False, False, True))


class SetType(ExtendedType):
    """Bit sets in text. Source: CU-CS-946-03 §7.1, figure 9."""

    name = "Set"

    def operators(self) -> Sequence[ExtendedOperator]:
        return SetLessEqual(), SetGreaterEqual(), SetIntersect()


def _bits(text: bytes) -> int:
    """Returns the set as an integer: little-endian, so that trailing zero bytes add nothing."""
    return int.from_bytes(text, "little")


def _chain(
    constant: bytes, passes: _ByteTest, accepting: tuple[bool, bool, bool], *, zeros: bool = False
) -> Automaton:
    """Returns a chain of a state per byte of the constant, a last one, and one for a failed byte.

    `accepting` gives the accepting ones of these three kinds; `zeros` allows only zeros after the
    chain.
    """
    stem = constant.rstrip(b"\0")
    last, out = len(stem), len(stem) + 1
    if out + 1 > STATES_MAX:
        raise LimitError("STATES_MAX", STATES_MAX, out + 1)
    rows = [
        [state + 1 if passes(byte, of) else out for byte in range(256)]
        for state, of in enumerate(stem)
    ]
    rows += [[last, *[out] * 255] if zeros else [last] * 256, [out] * 256]
    accepts = [accepting[0]] * last + [*accepting[1:]]
    count = len(rows) if stem or zeros else 1  # Without a bit nothing leads out.
    return Automaton(tuple(array("H", row) for row in rows[:count]), tuple(accepts[:count]))

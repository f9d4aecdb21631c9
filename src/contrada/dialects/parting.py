"""Conjunctions of many alternatives as few conjunctions of value sets, their *boxes*.

`(a1 or b1) and (a2 or b2) and …` is a box for each choice of alternatives: 2^n. But behind an
alternative that tests one attribute only, the others are taken where it fails. What fails is
often a few values, for which the alternatives of other parts hold anyway, and such parts are then
left out. So n parts `a is not A_n or b is not B_n` become about n + 1 boxes.

Invariant: a notification is in some box exactly where each part has an alternative that holds.
How sets lie to one another is told where that is cheap; where it is not told, there are more
boxes, or some that nothing is in.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from contrada.dialects.hulls import Hulls, hull_of
from contrada.dialects.inclusion import is_comparable, lies_in
from contrada.errors import LimitError
from contrada.model.algebra.valueset import ValueSet, intersection
from contrada.model.domains import line
from contrada.model.languages.language import Language, atoms_of
from contrada.model.languages.steps import bits_of

Sets: TypeAlias = Mapping[str, ValueSet]
"""A conjunction: of each attribute the set that its value is in."""

PARTING_STEPS_MAX: Final = 1_000_000
"""Steps of taking the alternatives of a rule apart: tests looked at, sets joined. Beyond it: the
rule is refused."""

ASKING_STEPS_MAX: Final = 500_000
"""Steps of comparing the sets of one condition, pairs of operators. Beyond it: the rest count as
not contained, and more filters are made."""

PAIRS_ASKED_MAX: Final = 2_500
"""Pairs of operators on text, of two sets, compared to tell whether one is in the other. Beyond
it: it counts as not in it, and more filters are made."""

JOINING_STEPS: Final = 10
"""Steps that a set counts for when many of them are intersected."""

OTHERS_ASKED_MAX: Final = 100
"""Sets that one set is compared with at a time. Beyond it: the rest count as not containing it,
and more filters are made."""


def parted(choices: Iterable[Sequence[Sets]]) -> Iterator[Sets]:
    """Boxes of which one holds exactly where each choice has an alternative that does.

    Conjunctions that stand in several choices should be the same objects. Raises LimitError
    beyond PARTING_STEPS_MAX.
    """
    distinct = {tuple(map(id, choice)): choice for choice in choices}
    return _Parting(sorted(distinct.values(), key=len)).boxes()


class _Steps:
    """Counts the steps."""

    def __init__(self) -> None:
        self._taken = 0
        self._asking = 0

    @property
    def may_ask(self) -> bool:
        """Whether any are left for questions."""
        return self._asking < ASKING_STEPS_MAX

    def ask(self, steps: int) -> None:
        """Steps of a question."""
        self._asking += steps

    def take(self, steps: int) -> None:
        """Raises LimitError beyond PARTING_STEPS_MAX."""
        self._taken += steps
        if self._taken > PARTING_STEPS_MAX:
            raise LimitError("PARTING_STEPS_MAX", PARTING_STEPS_MAX)


# --- the sets of one attribute ------------------------------------------------------------------


class _Test(NamedTuple):
    """That a value is in the set of this number, or that it is not."""

    number: int
    holds: bool


class _Tests(NamedTuple):
    """Tests of one attribute that hold together: the sets it is in, and is not in, as bits."""

    held: int = 0
    failed: int = 0


class _Relation(IntEnum):
    """How a set lies to another one."""

    INSIDE = 0
    AROUND = 1
    APART = 2
    TOGETHER = 3
    """Each value is in one of the two, or in both."""


_INVERSE: Final = {
    _Relation.INSIDE: _Relation.AROUND,
    _Relation.AROUND: _Relation.INSIDE,
    _Relation.APART: _Relation.APART,
    _Relation.TOGETHER: _Relation.TOGETHER,
}


class _Set:
    """A value set and its complement, taken apart for questions."""

    def __init__(self, values: ValueSet, complement: ValueSet) -> None:
        self.values = values
        self.complement = complement

    @cached_property
    def inside(self) -> tuple[line.Cuts, Language]:
        """Its cuts and its text."""
        return self.values.parts()

    @cached_property
    def outside(self) -> tuple[line.Cuts, Language]:
        """Those of its complement."""
        return self.complement.parts()

    @cached_property
    def operators(self) -> int:
        """How many operators on text it has."""
        return sum(1 for _ in atoms_of(self.inside[1]))


class _Attribute:
    """The sets of one attribute. Each pair is asked about once, and only when it matters."""

    def __init__(self, steps: _Steps) -> None:
        self._steps = steps
        self._tests: dict[object, _Test] = {}
        """By the form of a value set, the test that a value is in it."""
        self._sets: list[_Set] = []
        self._comparable = 0
        """The sets of which something can be told by constants."""
        self._asked: list[list[int]] = []
        self._true: list[list[int]] = []
        """For each set and relation: the sets that were asked about, and those so related."""
        self._values: dict[_Tests, ValueSet] = {}

    def test(self, values: ValueSet) -> _Test:
        """The test that a value is in the set. Of a set and its complement, one is numbered."""
        form = (values.line, values.text)
        known = self._tests.get(form)
        if known is None:
            self._steps.take(1)
            opposite = ~values
            holds = hull_of(values) is not None or hull_of(opposite) is None
            known = self._tests[form] = _Test(len(self._sets), holds)
            self._tests[opposite.line, opposite.text] = _Test(len(self._sets), not holds)
            self._sets.append(_Set(values, opposite) if holds else _Set(opposite, values))
            self._comparable |= is_comparable(values.parts()[1]) << known.number
            self._asked.append([0] * len(_Relation))
            self._true.append([0] * len(_Relation))
        return known

    @cached_property
    def hulls(self) -> Hulls:
        """Made when all sets are there."""
        return Hulls([hull_of(each.values) for each in self._sets], self._steps.take)

    def implied(self, tests: _Tests, test: _Test) -> bool:
        """Whether one of the tests is known to imply the test."""
        number, holds = test
        near, known = self.hulls.near(number), self.hulls.known
        if holds:
            wide = tests.failed & ~known if known >> number & 1 else tests.failed
            return self._some(number, _Relation.AROUND, tests.held & near) or self._some(
                number, _Relation.TOGETHER, wide
            )
        if tests.held & ~near:
            return True
        return self._some(number, _Relation.APART, tests.held) or self._some(
            number, _Relation.INSIDE, tests.failed & near
        )

    def joined(self, tests: _Tests, test: _Test) -> _Tests:
        """All together, without those that the new test implies."""
        (held, failed), (number, holds) = tests, test
        bit, near = 1 << number, self.hulls.near(number)
        if holds:
            held &= ~self._related(number, _Relation.INSIDE, held & near)
            failed &= near & ~self._related(number, _Relation.APART, failed & near)
            return _Tests(held | bit, failed)
        failed &= ~self._related(number, _Relation.AROUND, failed & near)
        held &= ~self._related(number, _Relation.TOGETHER, held & ~self.hulls.known)
        return _Tests(held, failed | bit)

    def values(self, tests: _Tests) -> ValueSet:
        """The values for which all tests hold."""
        known = self._values.get(tests)
        if known is None:
            sets = [self._sets[number].values for number in bits_of(tests.held)]
            sets += (self._sets[number].complement for number in bits_of(tests.failed))
            self._steps.take(JOINING_STEPS * len(sets))
            known = self._values[tests] = intersection(sets)
        return known

    def _some(self, number: int, relation: _Relation, others: int) -> bool:
        if others & self._true[number][relation]:
            return True
        return any(
            self._ask(number, relation, each) for each in self._new(number, relation, others)
        )

    def _related(self, number: int, relation: _Relation, others: int) -> int:
        for each in self._new(number, relation, others):
            self._ask(number, relation, each)
        return others & self._true[number][relation]

    def _new(self, number: int, relation: _Relation, others: int) -> Iterator[int]:
        """The sets that are worth asking about, the first of them where they are many."""
        if not self._comparable >> number & 1:
            return iter(())
        others &= self._comparable & ~self._asked[number][relation]
        return islice(bits_of(others), OTHERS_ASKED_MAX)

    def _ask(self, number: int, relation: _Relation, other: int) -> bool:
        """Whether it is known to be so. No also where it would cost to tell."""
        one, two = self._sets[number], self._sets[other]
        self._steps.take(1)
        answer = number == other and relation < _Relation.APART
        is_small = one.operators * two.operators <= PAIRS_ASKED_MAX
        if not answer and is_small and self._steps.may_ask:
            self._steps.ask(1)
            pairs = {
                _Relation.INSIDE: (one.inside, two.inside),
                _Relation.AROUND: (two.inside, one.inside),
                _Relation.APART: (one.inside, two.outside),
                _Relation.TOGETHER: (one.outside, two.inside),
            }
            inner, outer = pairs[relation]
            answer = line.includes(outer[0], inner[0]) and lies_in(
                inner[1], outer[1], self._steps.ask
            )
        for a, b, so in ((number, other, relation), (other, number, _INVERSE[relation])):
            self._asked[a][so] |= 1 << b
            self._true[a][so] |= answer << b
        return answer


# --- boxes --------------------------------------------------------------------------------------

_Alternative: TypeAlias = tuple[tuple[str, _Test], ...]


class _Box(NamedTuple):
    """A conjunction, and the choices that it may not imply yet, as bits."""

    tests: dict[str, _Tests]
    open: int


class _Failing:
    """Sets of one attribute that have a hull, and the choices that hold where each fails."""

    def __init__(self) -> None:
        self._sets = 0
        self._choices = 0
        self._having: dict[int, int] = {}

    def add(self, number: int, choices: int) -> None:
        """One more set, and the choices that hold where it fails."""
        self._sets |= 1 << number
        self._choices |= choices
        self._having[number] = choices

    @property
    def size(self) -> int:
        """How many choices there are."""
        return self._choices.bit_count()

    def apart(self, near: int) -> int:
        """The choices of which no set is near."""
        choices = self._choices
        for number in bits_of(self._sets & near):
            choices &= ~self._having[number]
        return choices


class _Parting:
    """The boxes of one condition."""

    def __init__(self, choices: Sequence[Sequence[Sets]]) -> None:
        self._steps = _Steps()
        self._attributes: dict[str, _Attribute] = {}
        given = {id(sets): sets for choice in choices for sets in choice}
        known = {number: self._alternative(sets) for number, sets in given.items()}
        read = [[known[id(sets)] for sets in choice] for choice in choices]
        self._with: dict[_Alternative, int] = {}
        """Of each alternative, the choices that have it."""
        for number, choice in enumerate(read):
            for each in choice:
                self._with[each] = self._with.get(each, 0) | 1 << number
        self._failing: dict[str, _Failing] = {}
        for each, having in self._with.items():
            for name, test in each if len(each) == 1 else ():
                if not test.holds and self._has_hull(name, test):
                    self._failing.setdefault(name, _Failing()).add(test.number, having)
        self._choices = [sorted(dict.fromkeys(choice), key=self._order) for choice in read]

    def boxes(self) -> Iterator[Sets]:
        """One after another, in the order of the alternatives."""
        waiting = [_Box({}, (1 << len(self._choices)) - 1)]
        while waiting:
            box = waiting.pop()
            if box.open:
                waiting += reversed([*self._split(box)])
            else:
                yield {
                    name: self._attributes[name].values(tests) for name, tests in box.tests.items()
                }

    def _alternative(self, sets: Sets) -> _Alternative:
        return tuple((name, self._attribute(name).test(values)) for name, values in sets.items())

    def _attribute(self, name: str) -> _Attribute:
        return self._attributes.setdefault(name, _Attribute(self._steps))

    def _has_hull(self, name: str, test: _Test) -> bool:
        return self._attributes[name].hulls.known >> test.number & 1 == 1

    def _order(self, alternative: _Alternative) -> tuple[int, ...]:
        """First what is parted best: few values of one attribute, what many choices have."""
        plain = all(self._has_hull(name, test) for name, test in alternative)
        alike = sum(self._failing[name].size for name, _ in alternative if name in self._failing)
        return len(alternative), not plain, -alike, -self._with[alternative].bit_count()

    def _split(self, box: _Box) -> Iterator[_Box]:
        """The boxes of the first open choice."""
        number = (box.open & -box.open).bit_length() - 1
        box = _Box(box.tests, box.open & ~(1 << number))
        alternatives = self._choices[number]
        if any(self._implies(box, each) for each in alternatives):
            yield box
            return
        for each in alternatives:
            part = self._narrowed(box, each)
            if part is not None:
                yield part
            if len(each) == 1:
                [(name, test)] = each
                rest = self._narrowed(box, ((name, _Test(test.number, not test.holds)),))
                if rest is None:
                    return
                box = rest

    def _implies(self, box: _Box, alternative: _Alternative) -> bool:
        self._steps.take(1 + len(alternative))
        return all(
            name in box.tests and self._attributes[name].implied(box.tests[name], test)
            for name, test in alternative
        )

    def _narrowed(self, box: _Box, alternative: _Alternative) -> _Box | None:
        """Both together, or None where two sets of an attribute have no value in common."""
        self._steps.take(8 + len(box.tests) // 16)
        tests = dict(box.tests)
        open_ones = box.open & ~self._with.get(alternative, 0)
        for name, test in alternative:
            attribute, known = self._attributes[name], tests.get(name, _Tests())
            if attribute.implied(known, _Test(test.number, not test.holds)):
                return None
            if not attribute.implied(known, test):
                tests[name] = attribute.joined(known, test)
            if test.holds and self._has_hull(name, test):
                open_ones &= ~self._left_out(name, test.number)
        return _Box(tests, open_ones)

    def _left_out(self, name: str, number: int) -> int:
        """The choices that hold since sets fail which have nothing in common with this one."""
        if name not in self._failing:
            return 0
        self._steps.take(1)
        return self._failing[name].apart(self._attributes[name].hulls.near(number))

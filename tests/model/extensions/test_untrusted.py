"""Operators that raise or answer nonsense: nothing ends, everything is counted and safe."""

from array import array
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import contrada as ct
from contrada.errors import EncodingError, ExtensionError, InvalidFilterError
from contrada.model import codec
from contrada.model.algebra import sets
from contrada.model.languages import decision
from contrada.model.languages.atoms import Atom, Operator, failures, registry
from contrada.model.languages.automaton import Automaton, search_automaton

Answer = Callable[[], Any]


def fail() -> Any:
    raise ZeroDivisionError("on purpose")


def overflow() -> Any:
    return overflow()


NONSENSE: list[Answer] = [fail, overflow, lambda: 1, lambda: "yes", list, object]


class Odd(Operator):
    """An operator with methods that answer as the test wants."""

    name = "odd"
    answers: ClassVar[dict[str, Answer]] = {}

    def _answer(self, method: str, default: Any) -> Any:
        return self.answers.get(method, lambda: default)()

    def check(self, constant: bytes) -> None:
        self._answer("check", None)

    def apply(self, value: bytes, constant: bytes) -> bool:
        return self._answer("apply", True)  # type: ignore[no-any-return]

    def automaton(self, constant: bytes) -> Automaton | None:
        return self._answer("automaton", None)  # type: ignore[no-any-return]

    def implied(self, constant: bytes) -> Atom | None:
        return self._answer("implied", None)  # type: ignore[no-any-return]

    def covers(self, constant: bytes, other: Atom) -> bool | None:
        return self._answer("covers", None)  # type: ignore[no-any-return]

    def intersects(self, constant: bytes, other: Atom) -> bool | None:
        return self._answer("intersects", None)  # type: ignore[no-any-return]


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Answer], None]:
    """Registers the operator; the given function sets a method's answer."""
    monkeypatch.setattr(Odd, "answers", {})
    registry.register(Odd())
    decision.find.cache_clear()
    return lambda method, answer: Odd.answers.update({method: answer})


@pytest.mark.parametrize("answer", [*NONSENSE, lambda: None])
def test_an_apply_that_fails_does_not_match(
    odd: Callable[[str, Answer], None], answer: Answer
) -> None:
    """One bad operator would end the delivery of all notifications, or match at random."""
    f = ct.Filter("x odd 'a'")
    assert f.matches(ct.Notification({"x": "b"}))
    odd("apply", answer)
    assert not f.matches(ct.Notification({"x": "b"}))
    assert failures == {"odd": 1}


@pytest.mark.parametrize("answer", NONSENSE)
@pytest.mark.parametrize("method", ["covers", "intersects"])
def test_relations_that_fail_are_answered_safely(
    odd: Callable[[str, Answer], None], method: str, answer: Answer
) -> None:
    """A bad operator would hide subscriptions, or end the router."""
    f, g = ct.Filter("x odd 'a'"), ct.Filter("x odd 'b'")
    odd(method, answer)
    odd("apply", lambda: False)  # so that trying a text or two does not decide
    assert not f.covers(g)
    assert ct.meets(f, g)
    assert failures["odd"] >= 1
    assert decision.safe_answers["covers"] == 1
    assert decision.safe_answers["meets"] == 1


def test_relations_that_answer_are_used(odd: Callable[[str, Answer], None]) -> None:
    """An operator's knowledge would be lost."""
    odd("covers", lambda: True)
    odd("intersects", lambda: False)
    assert ct.Filter("x odd 'a'").covers(ct.Filter("x odd 'b'"))
    assert not ct.meets(ct.Filter("x odd 'a'"), ct.Filter("x odd 'c'"))
    assert not failures


@pytest.mark.parametrize("answer", NONSENSE)
def test_an_automaton_that_fails_leaves_the_operator_opaque(
    odd: Callable[[str, Answer], None], answer: Answer
) -> None:
    """A bad automaton would end every decision about the attribute."""
    odd("automaton", answer)
    f = ct.Filter("x odd 'a'")
    assert not f.covers(ct.Filter("x suffix 'b'"))
    assert ct.meets(f, ct.Filter("x suffix 'b'"))
    assert hash(f) == hash(ct.Filter("x odd 'a'"))
    assert failures == {"odd": 1}


def automaton(*rows: Any, accepting: Any = None) -> Automaton:
    return Automaton(rows, (True,) * len(rows) if accepting is None else accepting)


ROW = bytes(256)
MALFORMED: list[Answer] = [
    lambda: automaton(),
    lambda: automaton(ROW[1:]),
    lambda: automaton(ROW + b"\0"),
    lambda: automaton(b"\1" * 256),
    lambda: automaton(array("h", [-1] * 256)),
    lambda: automaton(array("d", [0.0] * 256)),
    lambda: automaton([None] * 256),
    lambda: automaton(None),
    lambda: automaton(ROW, accepting=()),
    lambda: automaton(ROW, accepting=(2,)),
    lambda: automaton(ROW, accepting=7),
    lambda: automaton(*[ROW] * 10_001),
]


@pytest.mark.parametrize("answer", MALFORMED)
def test_a_malformed_automaton_leaves_the_operator_opaque(
    odd: Callable[[str, Answer], None], answer: Answer
) -> None:
    """A decision would end with a bare error, or with a wrong answer."""
    odd("automaton", answer)
    f = ct.Filter("x odd 'a'")
    assert not f.covers(ct.Filter("x suffix 'b'"))
    assert ct.meets(f, ct.Filter("x suffix 'b'"))
    assert hash(f) == hash(ct.Filter("x odd 'a'"))
    assert failures == {"odd": 1}


@pytest.mark.parametrize(
    "answer",
    [
        *NONSENSE,
        lambda: Atom("suffix", "text"),  # type: ignore[arg-type]
        lambda: Atom("suffix", None),  # type: ignore[arg-type]
        lambda: Atom("nothing like it", b"a"),
        lambda: Atom("matches", b"a"),
        lambda: Atom("odd", b"a"),
        lambda: Atom("suffix", b"no end of them"),
        lambda: Atom("contains nocase", b"\xff"),
    ],
)
@pytest.mark.parametrize("compiled", [False, None])
@pytest.mark.parametrize("is_regular", [True, False])
def test_a_wrong_implication_loses_no_match(
    odd: Callable[[str, Answer], None], answer: Answer, compiled: bool | None, is_regular: bool
) -> None:
    """The index would search a text that is absent, and the subscriber miss a notification."""
    odd("implied", answer)
    if is_regular:
        odd("automaton", lambda: automaton(ROW))
    index: ct.Index[int] = ct.Index()
    index.add(1, ct.Filter("x odd 'a'"))
    assert index.match({"x": "b"}) == [1]
    assert failures["odd"] == 1


def test_proved_implications_are_looked_up(odd: Callable[[str, Answer], None]) -> None:
    """Each filter of an extension would be checked for each notification."""
    odd("implied", lambda: Atom("suffix", b"bc"))
    odd("automaton", lambda: search_automaton(b"abc", anything_after=False))
    odd("apply", fail)
    index: ct.Index[int] = ct.Index()
    index.add(1, ct.Filter("x odd 'a'"))
    assert index.match({"x": "abd"}) == []
    assert not failures, "it was asked in vain"


@pytest.mark.parametrize("answer", [fail, overflow])
def test_a_check_that_fails_refuses_the_constant(
    odd: Callable[[str, Answer], None], answer: Answer
) -> None:
    """A bad check would end a broker that reads a stranger's filter."""
    encoded = codec.to_msgpack(ct.Filter("x odd 'a'"))
    odd("check", answer)
    with pytest.raises(InvalidFilterError, match="check failed"):
        sets.extension("odd", "a")
    with pytest.raises(EncodingError, match="check failed"):
        codec.from_msgpack(encoded)
    assert failures == {"odd": 2}


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "1st",
        "a-b",
        "<",
        "set<>",
        "set<= ",
        "§",
        "&",
        "&&&",
        "x\n",
        "contains nocase",
    ],
)
def test_a_name_that_the_text_syntax_cannot_read_is_refused(name: str) -> None:
    """A filter with the operator could be built and printed, but never parsed."""
    operator = Odd()
    operator.name = name
    with pytest.raises(ExtensionError):
        registry.register(operator)


@pytest.mark.parametrize("name", ["and", "in", "any", "nocase", "null", "within", "suffix"])
def test_a_word_of_the_text_syntax_is_refused(name: str) -> None:
    """A filter's text would change its meaning when the operator is loaded."""
    operator = Odd()
    operator.name = name
    with pytest.raises(ExtensionError, match="a word of the text syntax"):
        registry.register(operator)


@pytest.mark.parametrize(
    "name", ["odd", "odd<=", "odd>=", "odd<", "odd>", "odd=", "odd~", "größer", "o_1"]
)
def test_names_that_are_allowed_are_read(name: str) -> None:
    """An operator would be registered with filters that do not parse."""
    operator = Odd()
    operator.name = name
    registry.register(operator)
    f = ct.Filter(f"x {name} 'a' and y not {name} 'a'")
    assert ct.parse(str(f)) == f

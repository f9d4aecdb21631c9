"""Sigma rules evaluated directly on an event.

It uses no value sets and no filters, only the words of a rule, one by one. An event is a dictionary
with one value per field; other fields are absent.
"""

import ipaddress
import itertools
import operator
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

Event = dict[str, Any]

DASHES: Final = "-/–—―"


def holds(detection: dict[str, Any], event: Event) -> bool:
    """Whether the condition of a detection holds for an event."""
    conditions = detection["condition"]
    selections = {name: each for name, each in detection.items() if name != "condition"}
    given = conditions if isinstance(conditions, list) else [conditions]
    return any(_Condition(text, selections, event).holds() for text in given)


class _Condition:
    """A condition, read from left to right."""

    def __init__(self, text: str, selections: dict[str, Any], event: Event) -> None:
        self._words = re.findall(r"\(|\)|[^\s()]+", text)
        self._selections = selections
        self._event = event

    def holds(self) -> bool:
        answer = self._some()
        assert not self._words
        return answer

    def _some(self) -> bool:
        answer = self._every()
        while self._words[:1] == ["or"]:
            self._words.pop(0)
            answer = self._every() or answer
        return answer

    def _every(self) -> bool:
        answer = self._part()
        while self._words[:1] == ["and"]:
            self._words.pop(0)
            answer = self._part() and answer
        return answer

    def _part(self) -> bool:
        word = self._words.pop(0)
        if word == "not":
            return not self._part()
        if word == "(":
            answer = self._some()
            assert self._words.pop(0) == ")"
            return answer
        if self._words[:1] == ["of"]:
            self._words.pop(0)
            pattern = self._words.pop(0)
            names = [name for name in self._selections if name[0] != "_" and fits(pattern, name)]
            answers = [selected(self._selections[name], self._event) for name in names]
            return all(answers) if word == "all" else any(answers)
        return selected(self._selections[word], self._event)


def fits(pattern: str, name: str) -> bool:
    """Whether a name is one of those that a pattern means."""
    if pattern == "them" or pattern == name == "":
        return True
    if pattern[:1] == "*":
        return fits(pattern[1:], name) or (name != "" and fits(pattern, name[1:]))
    return name != "" and pattern[:1] == name[:1] and fits(pattern[1:], name[1:])


def selected(selection: Any, event: Event) -> bool:
    """Whether a selection holds: a map of fields, or one of a list of maps."""
    if isinstance(selection, list):
        return any(selected(each, event) for each in selection)
    return all(field_holds(key, given, event) for key, given in selection.items())


def field_holds(key: str, given: Any, event: Event) -> bool:
    """Whether a field has one of its values, or all of them with `all`."""
    field, *modifiers = key.split("|")
    values = given if isinstance(given, list) else [given]
    rest = [each for each in modifiers if each not in ("all", "neq")]
    answers = [value_holds(rest, value, field, event) for value in values]
    answer = all(answers) if "all" in modifiers else any(answers)
    return answer is not ("neq" in modifiers)


def value_holds(modifiers: list[str], value: Any, field: str, event: Event) -> bool:
    """Whether a field has one value of a rule."""
    found = event.get(field)
    if modifiers[:1] == ["fieldref"]:
        return found is not None and same_fields(modifiers[1:], found, event.get(value))
    if modifiers and modifiers[0] in TIME_PARTS:
        compare = COMPARISONS[modifiers[1]] if modifiers[1:] else operator.eq
        return isinstance(found, datetime) and compare(TIME_PARTS[modifiers[0]](found), value)
    if modifiers == ["exists"]:
        return (field in event) is value
    if value is None:
        return found is None
    if field not in event:
        return False
    if modifiers[:1] == ["re"]:
        flags = sum((getattr(re, each.upper()) for each in modifiers[1:]), re.RegexFlag(0))
        return isinstance(found, str) and re.search(value, found, flags) is not None
    if modifiers == ["cidr"]:
        return isinstance(found, str) and in_network(found, value)
    if modifiers and modifiers[0] in COMPARISONS:
        number = isinstance(found, int | float) and not isinstance(found, bool)
        return number and COMPARISONS[modifiers[0]](found, value)
    fold: Callable[[str], str] = str if "cased" in modifiers else str.lower
    if not isinstance(value, str):
        return equal(found, value, fold)
    texts = changed(symbols(value), [each for each in modifiers if each != "cased"])
    return any(text_holds(text, found, fold) for text in texts)


def same_fields(modifiers: list[str], found: Any, other: Any) -> bool:
    """Whether the value of a field fits that of another one."""
    fold: Callable[[str], str] = str if "cased" in modifiers else str.lower
    changes = [each for each in modifiers if each != "cased"]
    if isinstance(other, str):
        return any(text_holds(text, found, fold) for text in changed(plain(other), changes))
    return not changes and other is not None and equal(found, other, fold)


TIME_PARTS: Final[dict[str, Callable[[datetime], int]]] = {
    **{part: operator.attrgetter(part) for part in ("minute", "hour", "day", "month", "year")},
    "week": lambda time: time.isocalendar()[1],
}
COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "lt": lambda a, b: a < b,
    "lte": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "gte": lambda a, b: a >= b,
}


def in_network(found: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(found) in ipaddress.ip_network(network)
    except ValueError:
        return False


def equal(found: Any, value: Any, fold: Callable[[str], str]) -> bool:
    """Equality of a value that is no text: also with the text that shows it."""
    if isinstance(found, datetime) or isinstance(value, datetime):
        return bool(found == value)
    if isinstance(found, str):
        return fold(found) == fold(shown(value))
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    return found is not None and bool(found == value)


Symbol = tuple[str, bool]
"""A character, and whether it is a wildcard."""


def symbols(written: str) -> list[Symbol]:
    """The characters of a value as it is written in a rule."""
    found: list[Symbol] = []
    rest = written
    while rest:
        if rest[:2] in ("\\*", "\\?", "\\\\"):
            found.append((rest[1], False))
            rest = rest[2:]
        else:
            found.append((rest[0], rest[0] in "*?"))
            rest = rest[1:]
    return found


def changed(text: list[Symbol], modifiers: list[str]) -> list[list[Symbol]]:
    """Returns the texts that modifiers make of a text."""
    any_text: list[Symbol] = [("*", True)]
    texts = [text]
    for name in modifiers:
        if name == "contains":
            texts = [any_text + each + any_text for each in texts]
        elif name == "startswith":
            texts = [each + any_text for each in texts]
        elif name == "endswith":
            texts = [any_text + each for each in texts]
        elif name == "windash":
            texts = [dashed for each in texts for dashed in with_dashes(each)]
        elif name == "base64":
            texts = [plain(b64encode(data(literal(each))).decode()) for each in texts]
        elif name == "base64offset":
            texts = [plain(part) for each in texts for part in in_base64(data(literal(each)))]
        else:
            codec = {"wide": "utf-16-le", "utf16le": "utf-16-le", "utf16be": "utf-16-be"}[name]
            texts = [
                [s for c, w in each for s in ([(c, w)] if w else encoded(c, codec))]
                for each in texts
            ]
    return texts


def in_base64(text: bytes) -> Iterator[str]:
    """The characters that only the text decides, at each place where it can begin."""
    for before in range(3):
        whole = b64encode(bytes(before) + text + bytes(3)).decode()
        yield whole[-(-before * 8 // 6) : (before + len(text)) * 8 // 6]


def encoded(character: str, codec: str) -> list[Symbol]:
    """The bytes in a codec, as the characters that they are in UTF-8 where they are any."""
    return plain(character.encode(codec).decode("utf-8", "surrogateescape"))


def data(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def plain(text: str) -> list[Symbol]:
    return [(character, False) for character in text]


def literal(text: list[Symbol]) -> str:
    assert not any(wildcard for _, wildcard in text)
    return "".join(character for character, _ in text)


def with_dashes(text: list[Symbol]) -> Iterator[list[Symbol]]:
    """Every sign for a dash that begins a word and does not end one."""

    def is_word(place: int) -> bool:
        if not 0 <= place < len(text) or text[place][1]:
            return False
        return text[place][0].isalnum() or text[place][0] == "_"

    choices = [
        [(each, False) for each in DASHES]
        if character in DASHES and not wildcard and is_word(n + 1) and not is_word(n - 1)
        else [(character, wildcard)]
        for n, (character, wildcard) in enumerate(text)
    ]
    yield from map(list, itertools.product(*choices))


def text_holds(text: list[Symbol], found: Any, fold: Callable[[str], str]) -> bool:
    """Whether a value has the form of a text. A lone star fits every value."""
    if text and all(symbol == ("*", True) for symbol in text):
        return True
    if isinstance(found, str):
        return matches([(fold(c), w) for c, w in text], fold(found))
    if any(wildcard for _, wildcard in text) or isinstance(found, datetime | None):
        return False
    return fold(literal(text)) == shown(found)


def matches(text: list[Symbol], found: str) -> bool:
    forms = {("*", True): ".*", ("?", True): "."}
    pattern = "".join(forms.get(symbol) or re.escape(symbol[0]) for symbol in text)
    return re.fullmatch(pattern, found, re.DOTALL) is not None


def shown(value: Any) -> str:
    """The shortest text that shows a number or a truth value."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if float(value).is_integer() else str(value)

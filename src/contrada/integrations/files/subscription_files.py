"""Files of subscriptions: one `name: filter` per line; and files of rules in other dialects.

    # an operations desk
    late at JFK: kind = 'flight' and dep_delay > 120 and origin = 'JFK'
    gusts:       bulletin.observation.wind_gust > 40

Blank lines and lines that begin with `#` are ignored. A name is any text without a colon, unique in
its file. The filter is in the text syntax, including `or`, and must be satisfiable.
"""

import importlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from contrada.errors import ContradaError, InputError, ParseError
from contrada.model import Filter, FilterSet, parse
from contrada.model.rule import CorrelationRule, ReadAllRules, ReadRules, RefusedRule, Rule
from contrada.service.settings import read_text

NAME_CHARS_MAX: Final = 255
"""Characters of a subscription's name. Beyond it: InputError."""


def load_subscriptions(path: Path) -> Mapping[str, Filter | FilterSet]:
    """Returns the filters of a file; see `read_subscriptions`."""
    return read_subscriptions(read_text(path), str(path))


def read_subscriptions(text: str, source: str) -> Mapping[str, Filter | FilterSet]:
    """Returns the filters of a text by name, in its order. Raises InputError with line and column
    for the first invalid line, and for a text without any subscription.
    """
    found: dict[str, Filter | FilterSet] = {}
    for number, line in named_lines(text):
        before, colon, _ = line.partition(":")
        name = before.strip()
        if not colon or not name:
            reason = f"found {line.strip()[:60]!r}, expected `name: filter`"
            raise InputError(source, reason, number, 1)
        if len(name) > NAME_CHARS_MAX:
            reason = f"a name has at most NAME_CHARS_MAX = {NAME_CHARS_MAX} characters"
            raise InputError(source, reason, number, 1)
        if name in found:
            reason = f"found the name {name!r} again, expected a new one"
            raise InputError(source, reason, number, 1)
        # Blanks in place of the name keep the columns of errors those of the file.
        column = len(before) + 1
        filter_text = " " * column + line[column:]
        reason = ""
        try:
            parsed = parse(filter_text) if filter_text.strip() else None
        except ParseError as error:
            raise InputError(source, error.what, number, error.column) from None
        except ContradaError as error:
            raise InputError(source, str(error), number, column + 1) from None
        if parsed is None:
            reason = "found the end of the line, expected a filter"
        elif not isinstance(parsed, Filter | FilterSet):
            reason = "found a pattern, expected a filter"
        elif parsed.is_empty:
            reason = "found a filter that nothing can match"
        else:
            found[name] = parsed
        if reason:
            raise InputError(source, reason, number, column + 1)
    if not found:
        raise InputError(source, "found no subscription, expected lines of `name: filter`")
    return found


def named_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the lines of `name: …` with their numbers: no blank ones, and no comments."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


class Dialect(NamedTuple):
    """The module that reads a dialect, and the suffixes of its files in directories."""

    module: str
    suffixes: tuple[str, ...]
    read: str = "read_rules"

    def reader(self) -> ReadRules:
        """Imports and returns the function that reads its files."""
        return cast(ReadRules, getattr(importlib.import_module(self.module), self.read))


_YAML: Final = (".yml", ".yaml")
_JSON: Final = (".json", ".jsonl")

DIALECTS: Final = {
    "sigma": Dialect("contrada.integrations.dialects.sigma", _YAML),
    "eventbridge": Dialect(
        "contrada.integrations.dialects.eventbridge", (*_JSON, *_YAML, ".template")
    ),
    "cloudevents": Dialect("contrada.integrations.dialects.cloudevents", _JSON),
    "cesql": Dialect("contrada.integrations.dialects.cesql", (".cesql", ".txt")),
    "sql": Dialect("contrada.integrations.dialects.sql", (".sql",)),
    "prometheus": Dialect("contrada.integrations.dialects.prometheus", _YAML),
    "alertmanager": Dialect(
        "contrada.integrations.dialects.prometheus.alertmanager", (*_YAML, ".json")
    ),
    "pubsub": Dialect("contrada.integrations.dialects.pubsub", (".filter", ".txt")),
    "servicebus": Dialect(
        "contrada.integrations.dialects.sql.service_bus_filters", (".filter", ".txt")
    ),
    "jms": Dialect("contrada.integrations.dialects.sql.jms_selectors", (".selector", ".txt")),
    "rabbitmq": Dialect("contrada.integrations.dialects.rabbitmq", _JSON),
    "falco": Dialect("contrada.integrations.dialects.falco", _YAML),
}

WITH_CORRELATIONS: Final = {
    **DIALECTS,
    "sigma": Dialect("contrada.integrations.dialects.sigma", _YAML, "read_all"),
}
"""The dialects, for users that also match rules over several notifications."""

PREPARED: Final = Dialect("contrada.integrations.dialects.sigma", (".jsonl",), "read_prepared")
"""Sigma's rules with `--prepared`."""

STANDARD_INPUT: Final = "-"

NOT_UTF_8: Final = "not UTF-8"
NO_RULES: Final = "found no rule in the file"


def rule_files(places: tuple[Path, ...], suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Yields the given files, and the dialect's files below given directories, in order."""
    for place in places:
        if not place.is_dir():
            yield place
            continue
        found = sorted(each for each in place.rglob("*") if each.suffix.lower() in suffixes)
        if not found:
            expected = " or ".join(suffixes)
            raise InputError(str(place), f"found no file that ends in {expected}")
        yield from (each for each in found if each.is_file())


def rules_in(
    path: Path, read: ReadAllRules, options: dict[str, Any]
) -> Iterator[Rule | CorrelationRule | RefusedRule]:
    """Yields the rules of a file; an unreadable or empty file gives one refused rule."""
    try:
        is_piped = str(path) == STANDARD_INPUT
        text = (sys.stdin.buffer.read() if is_piped else path.read_bytes()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        yield RefusedRule("", InputError(str(path), f"byte {error.start + 1} is {NOT_UTF_8}"))
        return
    except OSError as error:
        yield RefusedRule("", InputError(str(path), f"cannot be read: {error.strerror}"))
        return
    rules = read(text, **options) if text.strip() else iter(())
    first = next(rules, RefusedRule("", InputError(str(path), NO_RULES)))
    yield from chain((first,), rules)


class RuleNames:
    """Makes unique names for rules, valid in a file of subscriptions: one line, no colon."""

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()

    def new(self, name: str) -> str:
        """Returns the name for the next rule."""
        words = " ".join(name.replace(":", ".").split())
        name = plain = words.lstrip("#")[: NAME_CHARS_MAX - 12] or "rule"
        while name in self._names:
            self._names[plain] += 1
            name = f"{plain} ({self._names[plain]})"
        self._names[name] += 1
        return name


def reason_of(rule: RefusedRule) -> str:
    """Returns the reason by which refusals are counted; files that are not UTF-8 share one."""
    reason = rule.reason
    return NOT_UTF_8 if isinstance(rule.error, InputError) and NOT_UTF_8 in reason else reason


def message_of(rule: RefusedRule) -> str:
    """Returns the error's message without the name of the file."""
    return plain_text(rule.error.reason if isinstance(rule.error, InputError) else str(rule.error))


def plain_text(text: str) -> str:
    """Returns a text that can be written: rules in JSON may hold lone surrogates."""
    return text.encode(errors="backslashreplace").decode()


def about_of(rule: Rule | CorrelationRule) -> dict[str, str | list[str]]:
    """Returns the author's description of a rule, in texts that can be written."""
    return {
        key: plain_text(each) if isinstance(each, str) else [*map(plain_text, each)]
        for key, each in rule.about.items()
    }


def load_rules(place: Path, dialect: str, **options: Any) -> tuple[dict[str, Rule], list[str]]:
    """Returns the rules by name, of a file or of a directory, and the messages of refused rules.
    `options` are those of the dialect's reader.
    """
    found, refused = load_all_rules(place, DIALECTS[dialect], **options)
    return {name: rule for name, rule in found.items() if isinstance(rule, Rule)}, refused


def load_all_rules(
    place: Path, source: Dialect, **options: Any
) -> tuple[dict[str, Rule | CorrelationRule], list[str]]:
    """As `load_rules`, also correlations, if the reader of the source gives them."""
    names = RuleNames()
    found: dict[str, Rule | CorrelationRule] = {}
    refused: list[str] = []
    for path in rule_files((place,), source.suffixes):
        for rule in rules_in(path, source.reader(), options):
            if not isinstance(rule, RefusedRule):
                found[names.new(plain_text(rule.name) or path.stem)] = rule
            else:
                parts = (str(path), plain_text(rule.name), message_of(rule))
                refused.append(" ".join(": ".join(filter(None, parts)).split()))
    return found, refused

"""Rules of Falco, with the macros and lists of their file, to filter sets.

A notification is an event: its fields by their names, such as `proc.name` and `proc.aname[2]`. A
comparison of an absent field, or of null, is false, also `!=`; `not` inverts it. A constant that is
a number is the number or its text, as the type of the field in Falco decides. Fields compared with
fields, transformers, bytes, and rules changed by `exceptions`, `append` or `override` are refused.

Source: Falco documentation, "Condition Syntax", "Rules", "Using the pmatch Operator".
"""

import re
from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from typing import Any, Final

from lark import Lark, Token, v_args

from contrada.errors import ContradaError, InvalidFilterError, LimitError, RefusedRuleError
from contrada.integrations.dialects import dialect_grammar
from contrada.integrations.dialects.json_text import exact_number
from contrada.integrations.dialects.yaml_documents import documents
from contrada.model.algebra import sets
from contrada.model.algebra.expression import Formula, Member
from contrada.model.algebra.filter import FilterSet, filter_set
from contrada.model.algebra.value_set import NOTHING, PRESENT, ValueSet, union
from contrada.model.languages import regex_syntax
from contrada.model.rule import (
    Note,
    RefusedRule,
    Rule,
    only_rule,
    read_or_refuse,
    require_name,
    require_text,
)

__all__ = ["filters", "read", "read_rules"]

DIALECT: Final = "falco"

MACRO_LEVELS_MAX: Final = 20
"""Levels of macros or lists in each other in a rule of Falco. Beyond it: the rule is refused."""

EXPANSIONS_MAX: Final = 1_000
"""Macros and lists that a condition of Falco uses, also within others. Beyond it: the rule is
refused."""

EXPANDED_CHARACTERS_MAX: Final = 200_000
"""Characters of a condition of Falco, and of its macros and lists at each use. Beyond it: the rule
is refused."""

NOT_A_CONDITION: Final = "not a condition on fields and constants"
NO_RULES: Final = "no rule in the file"
UNKNOWN: Final = "a macro or list that the file has not"
RECURSIVE: Final = "macros or lists that use each other too deeply"
EXPANDED: Final = "macros and lists that are used too often"
CHANGED: Final = "exceptions, append or override"
FIELD: Final = "a field that no attribute can be called"
NUMBER: Final = "a number that neither 64 bits nor a double hold"
STRING: Final = "a string that is no text"
PATTERN: Final = "a pattern that cannot be read"
DISABLED: Final = "a rule that is not enabled"

_THERE: Final = PRESENT - sets.eq(None)
_ITEM: Final = re.compile(r"^\s*-\s", re.MULTILINE)
_BARE: Final = re.compile(r"[A-Za-z]\w*", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?[0-9]+\.?[0-9]*(?:[eE][+-][0-9]+)?|0[xX][0-9a-fA-F]+")
_NETWORKS: Final = re.compile(r"fd\.[cslr]?net")
_QUOTED: Final = re.compile(r"""\"([^"\\]|\\.)*+"|'([^'\\]|\\.)*+'""", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(.?))", re.DOTALL)
_FALSE: Final = ("false", "no", "off", "n")
_ESCAPES: Final = dict(zip("bfnrt \\/\"'", "\b\f\n\r\t\\\\/\"'", strict=True))


class _Definitions:
    """The macros and lists of a file."""

    def __init__(self, document: list[Any]) -> None:
        self.macros: dict[str, Any] = {}
        self.lists: dict[str, Any] = {}
        self._open: list[str] = []
        self._expanded = 0
        self._characters = 0
        self._levels = 0
        for each in document:
            for kind, held in (("macro", self.macros), ("list", self.lists)):
                if isinstance(each, dict) and kind in each:
                    held[str(each[kind])] = each

    @cached_property
    def parser(self) -> Lark:
        return dialect_grammar.parser_of(__file__, "falco.lark", _FalcoReader(self))

    def rule_condition(self, of: dict[Any, Any]) -> Formula:
        """Returns the condition of a rule, whose macros and lists count anew."""
        self._expanded = self._levels = self._characters = 0
        self._open.clear()
        return self.condition(of)

    def condition(self, of: dict[Any, Any]) -> Formula:
        _check_unchanged(of)
        text = require_text(DIALECT, of.get("condition")).strip()
        self._count(text)
        levels = dialect_grammar.levels_in(text)
        self._levels += levels  # Conditions are read recursively, with those of macros in them.
        if self._levels > dialect_grammar.DIALECT_NESTING_MAX:
            raise LimitError("DIALECT_NESTING_MAX", dialect_grammar.DIALECT_NESTING_MAX)
        found: Formula = dialect_grammar.parse_condition(
            DIALECT, self.parser, text, NOT_A_CONDITION
        )
        self._levels -= levels
        return found

    def macro(self, name: str) -> Formula:
        if name not in self.macros:
            raise RefusedRuleError(DIALECT, UNKNOWN, name)
        self._enter(name)
        found = self.condition(self.macros[name])
        self._open.pop()
        return found

    def items(self, name: str) -> Iterator[str]:
        """Yields the constants of a list, and of lists in it."""
        if name not in self.lists:
            raise RefusedRuleError(DIALECT, UNKNOWN, name)
        self._enter(name)
        _check_unchanged(self.lists[name])
        content = self.lists[name].get("items")
        for each in content if isinstance(content, list) else [content]:
            text = require_text(DIALECT, each)
            self._count(text)
            yield from self.items(text) if text in self.lists else (_item(text),)
        self._open.pop()

    def _count(self, text: str) -> None:
        """Counts a text in a rule, each time that it is used. Raises LimitError."""
        self._characters += len(text) + 1
        if self._characters > EXPANDED_CHARACTERS_MAX:
            raise LimitError("EXPANDED_CHARACTERS_MAX", EXPANDED_CHARACTERS_MAX)

    def _enter(self, name: str) -> None:
        self._open.append(name)
        self._expanded += 1
        if len(self._open) > MACRO_LEVELS_MAX:
            raise RefusedRuleError(DIALECT, RECURSIVE, name)
        if self._expanded > EXPANSIONS_MAX:
            raise RefusedRuleError(DIALECT, EXPANDED, name)


def _check_unchanged(of: dict[Any, Any]) -> None:
    exceptions = of.get("exceptions") or []
    for each in exceptions if isinstance(exceptions, list) else [exceptions]:
        if not isinstance(each, dict) or each.get("values"):
            raise RefusedRuleError(DIALECT, CHANGED, each)
    if "override" in of or str(of.get("append", "false")).lower() not in _FALSE:
        raise RefusedRuleError(DIALECT, CHANGED, of.get("override", "append"))


@v_args(inline=True)
class _FalcoReader(dialect_grammar.FormulaReader):
    def __init__(self, known: _Definitions) -> None:
        super().__init__()
        self._known = known

    def macro(self, name: Token) -> Formula:
        return self._known.macro(str(name))

    def present(self, field: Token) -> Formula:
        return _member(field, _THERE)

    def compared(self, field: Token, how: Token, value: Token) -> Formula:
        text = _text(value)
        if how == "!=":
            return _member(field, _THERE - _equal(field, text))
        if how in ("=", "=="):
            return _member(field, _equal(field, text))
        if how in ("<", "<=", ">", ">="):
            return _member(field, sets.OPERATORS[str(how)](_number(text)))
        return _member(field, _accepted(str(how), text))

    def among(self, field: Token, how: Token, *values: Token | None) -> Formula:
        texts: list[str] = []
        for each in filter(None, values):
            name = _BARE.fullmatch(each)
            texts += (
                self._known.items(each) if name and each in self._known.lists else [_text(each)]
            )
        return _listed(field, how, texts)

    def among_list(self, field: Token, how: Token, name: Token) -> Formula:
        return _listed(field, how, self._known.items(str(name)))


def _listed(field: Token, how: Token, texts: Iterable[str]) -> Formula:
    texts = dict.fromkeys(texts)
    if how == "pmatch":
        return _member(field, union([_below(text) for text in texts] or [NOTHING]))
    return _member(field, union([_equal(field, text) for text in texts] or [NOTHING]))


def _member(field: Token, values: ValueSet) -> Formula:
    return Member(require_name(DIALECT, FIELD, str(field)), values)


def _text(token: Token) -> str:
    body = str(token)
    try:
        body.encode()
        if token.type == "STRING":
            body = _ESCAPE.sub(_escaped, body[1:-1])
    except (KeyError, UnicodeEncodeError):
        raise RefusedRuleError(DIALECT, STRING, body) from None
    return body


def _item(text: str) -> str:
    """Returns the constant of an item, which may be in quotes, as in a condition."""
    return _text(Token("STRING", text)) if _QUOTED.fullmatch(text) else text


def _escaped(match: re.Match[str]) -> str:
    code, letter = match.groups()
    if code is not None and int(code, 16) > 0x7F:
        raise KeyError(code)  # a byte of a text in UTF-8
    return chr(int(code, 16)) if code is not None else _ESCAPES[letter]


def _number(text: str) -> int | float:
    is_hexadecimal = text[:2].lower() == "0x"
    number = None
    if _NUMBER.fullmatch(text):
        number = exact_number(str(int(text, 16)) if is_hexadecimal else text)
    if number is None:
        raise RefusedRuleError(DIALECT, NUMBER, text)
    return number


def _equal(field: str, text: str) -> ValueSet:
    """Returns the text, and the number or truth value that it spells; of fields of networks the
    addresses in a network.
    """
    if _NETWORKS.fullmatch(field):
        try:
            return sets.cidr(text)
        except InvalidFilterError as error:
            raise RefusedRuleError(DIALECT, PATTERN, text, error.reason) from None
    found = sets.eq(text)
    if _NUMBER.fullmatch(text):
        found |= sets.eq(_number(text))
    elif text in ("true", "false"):
        found |= sets.eq(text == "true")
    return found


def _accepted(how: str, text: str) -> ValueSet:
    """Returns the texts that an operator on text accepts."""
    try:
        match how:
            case "startswith":
                return sets.prefix(text)
            case "endswith":
                return sets.suffix(text)
            case "contains" | "icontains":
                return sets.contains(text, nocase=how == "icontains")
            case "regex":
                regex_syntax.read(text)  # Alone: a parenthesis must not end the group around it.
                return sets.matches(rf"\A(?:{text})\z")
        if _GLOB_SPECIAL.search(text):
            raise RefusedRuleError(DIALECT, PATTERN, text)
        return sets.wildcard(text, nocase=how == "iglob")
    except InvalidFilterError as error:
        raise RefusedRuleError(DIALECT, PATTERN, text, error.reason) from None


_SPECIAL: Final = re.compile(r"[.^$+(){}|]")
_GLOB_SPECIAL: Final = re.compile(r"[\[\\]|[?*+@!]\(")
"""Classes, escapes and alternatives of fnmatch, which wildcards have not."""


def _below(path: str) -> ValueSet:
    """Returns a path and those below it; `*` and `?` stay within a directory."""
    if "[" in path or "\\" in path:
        raise RefusedRuleError(DIALECT, PATTERN, path)
    steps = [_SPECIAL.sub(r"\\\g<0>", step) for step in path.split("/") if step]
    shape = "/+".join(step.replace("*", "[^/]*").replace("?", "[^/]") for step in steps)
    try:
        return sets.matches(rf"\A/*{shape}(?:/|\z)") if steps else sets.ALL_TEXT
    except InvalidFilterError as error:
        raise RefusedRuleError(DIALECT, PATTERN, path, error.reason) from None


# --- files --------------------------------------------------------------------------------------


def read(text: str) -> Rule:
    """Returns the rule of a file that has one, or of a condition. Raises RefusedRuleError with one
    of the reasons above, and LimitError.
    """
    content = require_text(DIALECT, text)
    if not _ITEM.search(content):
        return Rule("", filter_set(_Definitions([]).rule_condition({"condition": content})))
    return only_rule(DIALECT, read_rules(content))


def filters(text: str) -> FilterSet:
    """Returns the filters of a file with one rule, or of a condition. Raises as `read`."""
    return read(text).exact_filters(DIALECT)


def read_rules(text: str) -> Iterator[Rule | RefusedRule]:
    """Yields the rules of a file in YAML. Of several rules, macros or lists with one name the last
    counts. Cost: linear, with each use of a macro; plus the filters.
    """
    content: list[Any] = []
    refused = False
    try:
        for document in documents(DIALECT, text, as_texts=True):
            if isinstance(document, RefusedRuleError):
                raise document
            content += document if isinstance(document, list) else []
    except ContradaError as error:
        refused = True
        yield RefusedRule("", error)
    known = _Definitions(content)
    rules = {
        str(each["rule"]): each for each in content if isinstance(each, dict) and "rule" in each
    }
    if not rules and not refused:
        yield RefusedRule("", RefusedRuleError(DIALECT, NO_RULES))
    for name, each in rules.items():
        yield read_or_refuse(name, partial(_rule, name, each, known))


def _rule(name: str, of: dict[Any, Any], known: _Definitions) -> Rule:
    notes = (Note(DISABLED, name),) if str(of.get("enabled")).lower() in _FALSE else ()
    about: dict[str, str | list[str]] = {"title": name}
    if isinstance(of.get("priority"), str):
        about["level"] = of["priority"]
    if isinstance(of.get("tags"), list):
        about["tags"] = [str(each) for each in of["tags"]]
    return Rule(name, filter_set(known.rule_condition(of)), notes=notes, about=about)

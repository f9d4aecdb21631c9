"""Strict, bounded YAML for dialects: ambiguous input is refused.

A document becomes None, bool, int, float, str, list and dict, from the parser's events. Plain
scalars have their meaning in YAML 1.1, as in the tools that run such rules (`yes` is true, `0x10`
is 16), except dates, which stay texts. Repeated keys, keys that are not scalars, tags, merge keys
and recursive documents are refused. In a template, a tag of CloudFormation is a map with its long
form: `!Ref x` is `{Ref: x}`, `!Sub x` is `{"Fn::Sub": x}`.

Aliases share the object of their anchor, so a small text can represent a huge document. Repeated
nodes count each time, up to `ALIASED_NODES_MAX` in the whole text.
"""

from collections.abc import Callable, Iterator
from typing import Final, NoReturn, TypeAlias, cast

import yaml

from contrada.errors import ContradaError, LimitError, RefusedRuleError
from contrada.model.rule import RefusedRule, Rule

DOCUMENTS_CHARACTERS_MAX: Final = 16_000_000
"""Characters of a YAML text. Beyond it: the text is refused."""

NODES_MAX: Final = 100_000
"""Scalars, lists and maps of a YAML document; those that aliases repeat count each time. Beyond
it: it and the rest of the text are refused."""

ALIASED_NODES_MAX: Final = 50_000
"""Nodes that YAML aliases repeat, at little cost, in a text. Beyond it: the rest is refused."""

DOCUMENT_NESTING_MAX: Final = 50
"""Levels of lists and maps in YAML. Beyond it: the rest is refused."""

NOT_YAML: Final = "not YAML"
UNUSUAL_YAML: Final = "YAML of a kind that rules do not need"

Document: TypeAlias = (
    "bool | int | float | str | list[Document] | dict[JsonScalar, Document] | None"
)
JsonScalar: TypeAlias = bool | int | float | str | None

_STRICT: Final = yaml.SafeLoader("")
"""Recognizes plain scalars that are numbers, truth values and null."""

_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = f"{_TAG}merge"


def documents(
    dialect: str, text: str, *, is_template: bool = False, as_texts: bool = False
) -> Iterator["Document | RefusedRuleError"]:
    """Yields the documents of a text in order; for a refused one, the dialect's error. Those of a
    template may have the tags of CloudFormation. With `as_texts` every scalar is its text.

    Cost: linear in the text, one or two seconds per megabyte; memory of about one document. Raises
    RefusedRuleError for a text that is not YAML, and LimitError; either ends the text.
    """
    if len(text) > DOCUMENTS_CHARACTERS_MAX:
        raise LimitError("DOCUMENTS_CHARACTERS_MAX", DOCUMENTS_CHARACTERS_MAX, len(text))
    try:
        events = yaml.parse(text, Loader=yaml.CSafeLoader)
        reader = _DocumentReader(dialect, events, is_template=is_template, as_texts=as_texts)
        yield from reader.documents()
    except UnicodeEncodeError:
        raise RefusedRuleError(dialect, NOT_YAML, "a lone surrogate") from None
    except yaml.YAMLError as error:
        found = getattr(error, "problem", None) or str(error)
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f"line {mark.line + 1}"
        raise RefusedRuleError(dialect, NOT_YAML, found, place) from None


def rules_of_documents(
    dialect: str, text: str, read: Callable[[Document], Iterator[Rule | RefusedRule]], no_rules: str
) -> Iterator[Rule | RefusedRule]:
    """Yields the rules that `read` finds in each document of a text. An error refuses the rest; a
    text with no rule is refused with the reason `no_rules`.
    """
    is_empty = True
    try:
        for document in documents(dialect, text):
            if isinstance(document, RefusedRuleError):
                rules: Iterator[Rule | RefusedRule] = iter((RefusedRule("", document),))
            else:
                rules = read(document)
            for rule in rules:
                is_empty = False
                yield rule
    except ContradaError as error:
        yield RefusedRule("", error)
        return
    if is_empty:
        yield RefusedRule("", RefusedRuleError(dialect, no_rules))


def only_document(dialect: str, text: str, reason: str, *, is_template: bool = False) -> Document:
    """Returns the only document of a text that is not null.

    Raises as `documents`, and RefusedRuleError with the reason for none or several.
    """
    every = documents(dialect, text, is_template=is_template)
    found = [each for each in every if each is not None]
    for each in found:
        if isinstance(each, RefusedRuleError):
            raise each
    if len(found) != 1:
        raise RefusedRuleError(dialect, reason, f"{len(found)} documents")
    return cast(Document, found[0])


class _DocumentReader:
    """Builds documents from the events of a parser."""

    def __init__(
        self, dialect: str, events: Iterator[yaml.Event], *, is_template: bool, as_texts: bool
    ) -> None:
        self._dialect = dialect
        self._as_texts = as_texts
        self._is_template = is_template
        self._events = events
        self._nodes = 0
        self._aliased = 0
        self._anchors: dict[str, tuple[Document, int]] = {}
        """The document of each anchor, and its number of nodes."""

    def documents(self) -> Iterator["Document | RefusedRuleError"]:
        """Yields each document when it is complete."""
        while not isinstance(self._next(), yaml.StreamEndEvent):
            if isinstance(self._event, yaml.DocumentStartEvent):
                self._anchors.clear()
                self._nodes = 0
                document: Document | RefusedRuleError
                try:
                    document = self._node(self._next(), 0)
                except RefusedRuleError as error:
                    document = error
                while not isinstance(self._event, yaml.DocumentEndEvent):
                    self._next()
                yield document

    def _next(self) -> yaml.Event:
        self._event = next(self._events)
        return self._event

    def _node(self, event: yaml.Event, depth: int) -> Document:
        """Returns the node that begins with an event, at a depth of lists and maps."""
        held: Document
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                self._refuse(f"*{event.anchor} where no such anchor is complete")
            held, nodes = self._anchors[event.anchor]
            self._aliased += nodes
            if self._aliased > ALIASED_NODES_MAX:
                raise LimitError("ALIASED_NODES_MAX", ALIASED_NODES_MAX)
            self._count(nodes)
            return held
        before = self._nodes
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent), "no other is left"
        if event.tag is not None and not (self._is_template and event.tag[:1] == "!" < event.tag):
            self._refuse(event.tag)
        if depth >= DOCUMENT_NESTING_MAX and not isinstance(event, yaml.ScalarEvent):
            raise LimitError("DOCUMENT_NESTING_MAX", DOCUMENT_NESTING_MAX)
        self._count(1)
        if isinstance(event, yaml.ScalarEvent):
            held = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            held = []
            while not isinstance(self._next(), yaml.CollectionEndEvent):
                held.append(self._node(self._event, depth + 1))
        else:
            held = self._map(depth + 1)
        if event.tag is not None:
            name = event.tag[1:]
            held = {name if name in _REFERENCES else f"Fn::{name}": held}
        if event.anchor is not None:
            self._anchors[event.anchor] = (held, self._nodes - before)
        return held

    def _map(self, depth: int) -> Document:
        held: dict[JsonScalar, Document] = {}
        while not isinstance(self._next(), yaml.CollectionEndEvent):
            key = self._node(self._event, depth)
            if isinstance(key, list | dict):
                self._refuse("a key that is no scalar")
            if key in held:
                self._refuse(f"key {key!r} twice")
            held[key] = self._node(self._next(), depth)
        return held

    def _scalar(self, event: yaml.ScalarEvent) -> JsonScalar:
        if not event.implicit[0]:
            return event.value
        tag = _STRICT.resolve(yaml.ScalarNode, event.value, (True, False))  # type: ignore[no-untyped-call]
        if tag == _MERGE:
            self._refuse("a merge key")
        if self._as_texts:
            return event.value
        node = yaml.ScalarNode(tag, event.value)
        try:
            return _CONSTRUCTORS.get(tag, yaml.SafeLoader.construct_scalar)(_STRICT, node)
        except ValueError:
            return self._refuse("a number that cannot be read")

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > NODES_MAX:
            raise LimitError("NODES_MAX", NODES_MAX)

    def _refuse(self, found: str) -> NoReturn:
        assert self._event.start_mark is not None, "events of a text have a place"
        place = f"line {self._event.start_mark.line + 1}"
        raise RefusedRuleError(self._dialect, UNUSUAL_YAML, found, place)


_REFERENCES: Final = ("Ref", "Condition")
"""Functions of CloudFormation without the prefix `Fn::`."""

_CONSTRUCTORS: Final = {
    f"{_TAG}null": yaml.SafeLoader.construct_yaml_null,
    f"{_TAG}bool": yaml.SafeLoader.construct_yaml_bool,
    f"{_TAG}int": yaml.SafeLoader.construct_yaml_int,
    f"{_TAG}float": yaml.SafeLoader.construct_yaml_float,
}

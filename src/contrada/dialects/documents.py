"""YAML as the dialects of rules read it: within bounds, with nothing decided in silence.

A document becomes None, bool, int, float, str, list and dict, from the parser's events and
without recursion. Plain scalars mean what YAML 1.1 says, as in the tools that run such rules
(`yes` is true, `0x10` is 16), but dates, which stay the text that was written. Refused are keys
that come twice, keys that are no scalars, tags, merge keys and documents that hold themselves.

An alias stands for what its anchor holds, and that object is shared, so a small text can stand
for a huge document. What aliases repeat counts as if it were written out, up to
`ALIASED_NODES_MAX` in the whole text.
"""

from collections.abc import Iterator
from typing import Final, NoReturn, TypeAlias

import yaml

from contrada.errors import LimitError, RefusedRuleError

DOCUMENTS_CHARACTERS_MAX: Final = 16_000_000
"""Characters of a text of YAML. Beyond it: the text is refused."""

NODES_MAX: Final = 100_000
"""Scalars, lists and maps of a document of YAML, those that aliases repeat counted each time.
Beyond it: it and the rest of the text are refused."""

ALIASED_NODES_MAX: Final = 50_000
"""Nodes of YAML that aliases repeat in one text. Repeats cost their writer a few characters each.
Beyond it: the rest is refused."""

DOCUMENT_NESTING_MAX: Final = 50
"""Lists and maps in one another in YAML. Beyond it: the rest is refused."""

NOT_YAML: Final = "not YAML"
UNUSUAL_YAML: Final = "YAML of a kind that rules do not need"

Document: TypeAlias = "bool | int | float | str | list[Document] | dict[Scalar, Document] | None"
Scalar: TypeAlias = bool | int | float | str | None

_STRICT: Final = yaml.SafeLoader("")
"""Knows which plain scalars are numbers, truth values and null."""

_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = f"{_TAG}merge"


def documents(dialect: str, text: str) -> Iterator[Document]:
    """The documents of a text, in order, each when it is asked for.

    Cost: linear in the text, one or two seconds per megabyte, and little memory besides that of
    one document. Raises RefusedRuleError of the dialect where the text is no YAML or holds what is
    refused, and LimitError; what comes behind is then not read.
    """
    if len(text) > DOCUMENTS_CHARACTERS_MAX:
        raise LimitError("DOCUMENTS_CHARACTERS_MAX", DOCUMENTS_CHARACTERS_MAX, len(text))
    builder = _DocumentBuilder(dialect)
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if builder.take(event):
                yield builder.root
    except UnicodeEncodeError:
        raise RefusedRuleError(dialect, NOT_YAML, "a lone surrogate") from None
    except yaml.YAMLError as error:
        found = getattr(error, "problem", None) or str(error)
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f"line {mark.line + 1}"
        raise RefusedRuleError(dialect, NOT_YAML, found, place) from None


class _Open:
    """A list or map whose end has not come yet."""

    __slots__ = ("anchor", "held", "key", "nodes_before")

    def __init__(self, anchor: str | None, held: Document, nodes_before: int) -> None:
        self.anchor = anchor
        self.held = held
        self.nodes_before = nodes_before
        self.key: tuple[Scalar] | None = None
        """In a map, the key whose value comes next."""


class _DocumentBuilder:
    """Documents from the events of a parser."""

    def __init__(self, dialect: str) -> None:
        self.root: Document = None
        self._dialect = dialect
        self._open: list[_Open] = []
        self._nodes = 0
        self._aliased = 0
        self._anchors: dict[str, tuple[Document, int]] = {}
        """What each anchor holds, and of how many nodes that is."""

    def take(self, event: yaml.Event) -> bool:
        """Goes one event further. Whether a document is complete, in `root`."""
        if isinstance(event, yaml.ScalarEvent):
            self._count(1)
            held = self._scalar(event)
            self._anchor(event.anchor, held, 1)
            self._put(held, event)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._begin([], event)
        elif isinstance(event, yaml.MappingStartEvent):
            self._begin({}, event)
        elif isinstance(event, yaml.CollectionEndEvent):
            done = self._open.pop()
            self._anchor(done.anchor, done.held, self._nodes - done.nodes_before)
            self._put(done.held, event)
        elif isinstance(event, yaml.AliasEvent):
            self._repeat(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._anchors.clear()
            self._nodes = 0
        return isinstance(event, yaml.DocumentEndEvent)

    def _begin(self, held: Document, event: yaml.CollectionStartEvent) -> None:
        if event.tag is not None:
            self._refuse(event.tag, event)
        if len(self._open) >= DOCUMENT_NESTING_MAX:
            raise LimitError("DOCUMENT_NESTING_MAX", DOCUMENT_NESTING_MAX)
        self._open.append(_Open(event.anchor, held, self._nodes))
        self._count(1)

    def _repeat(self, event: yaml.AliasEvent) -> None:
        known = self._anchors.get(event.anchor or "")
        if known is None:
            self._refuse(f"*{event.anchor} where no such anchor is complete", event)
        held, nodes = known
        self._aliased += nodes
        if self._aliased > ALIASED_NODES_MAX:
            raise LimitError("ALIASED_NODES_MAX", ALIASED_NODES_MAX)
        self._count(nodes)
        self._put(held, event)

    def _put(self, held: Document, event: yaml.Event) -> None:
        """Into what is open: as the next of a list, or in a map as key or value."""
        if not self._open:
            self.root = held
            return
        into = self._open[-1]
        if isinstance(into.held, list):
            into.held.append(held)
            return
        assert isinstance(into.held, dict), "scalars are never open"
        if into.key is not None:
            into.held[into.key[0]] = held
            into.key = None
        elif isinstance(held, list | dict):
            self._refuse("a key that is no scalar", event)
        elif held in into.held:
            self._refuse(f"key {held!r} twice", event)
        else:
            into.key = (held,)

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        if event.tag is not None:
            self._refuse(event.tag, event)
        if not event.implicit[0]:
            return event.value
        tag = _STRICT.resolve(yaml.ScalarNode, event.value, (True, False))  # type: ignore[no-untyped-call]
        if tag == _MERGE:
            self._refuse("a merge key", event)
        node = yaml.ScalarNode(tag, event.value)
        try:
            return _CONSTRUCTORS.get(tag, yaml.SafeLoader.construct_scalar)(_STRICT, node)
        except ValueError:
            return self._refuse("a number that cannot be read", event)

    def _anchor(self, anchor: str | None, held: Document, nodes: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (held, nodes)

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > NODES_MAX:
            raise LimitError("NODES_MAX", NODES_MAX)

    def _refuse(self, found: str, event: yaml.Event) -> NoReturn:
        assert event.start_mark is not None, "events of a text have a place"
        place = f"line {event.start_mark.line + 1}"
        raise RefusedRuleError(self._dialect, UNUSUAL_YAML, found, place)


_CONSTRUCTORS: Final = {
    f"{_TAG}null": yaml.SafeLoader.construct_yaml_null,
    f"{_TAG}bool": yaml.SafeLoader.construct_yaml_bool,
    f"{_TAG}int": yaml.SafeLoader.construct_yaml_int,
    f"{_TAG}float": yaml.SafeLoader.construct_yaml_float,
}

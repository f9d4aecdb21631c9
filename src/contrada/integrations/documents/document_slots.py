"""The slots of documents, in their order: of XML, of entries and their surroundings, of JSON.

Slots of XML come from the parser's elements. A text is everything between two elements, without
blanks around it; comments and processing instructions do not split it.

In JSON an object is an element, and an array repeats its name: `{"story": [{…}, {…}]}` has the
names of two XML elements `story`, in a document without a root. A scalar is a slot, and so is an
object that represents a value (`{"$time": …}`). Nested arrays are numbered level by level.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from lxml import etree

from contrada.errors import InvalidNotificationError, LimitError, ParseError
from contrada.integrations.documents import element_tree as trees
from contrada.integrations.documents.document_limits import DocumentLimits
from contrada.integrations.documents.element_tree import XmlNode
from contrada.integrations.documents.naming_strategies import Slot, escaped
from contrada.model.algebra import nested_objects as objects

ElementContent: TypeAlias = list[str | XmlNode] | XmlNode
"""Content of an element: a child, or a text with its instructions."""

REPEATED_NAMES_MAX: Final = 65_536
"""Names of repeated elements that are reported. Beyond it: no further names are."""


@dataclass(frozen=True, slots=True)
class ElementPath:
    """The place of an element: the names and numbers that slots in it begin with."""

    plain: str
    indexed: str
    position: str
    numbers: tuple[str, ...] = ()
    depth: int = 1
    is_escaping: bool = False

    @classmethod
    def to_root(cls, name: str, *, escape: bool) -> "ElementPath":
        """Returns the path to the root of a document."""
        segment = escaped(name) if escape else name
        return cls(segment, segment, name, is_escaping=escape)

    def segment(self, name: str) -> str:
        """Returns a name as a part of names."""
        return escaped(name) if self.is_escaping else name

    def child(self, name: str, number: int = 1, *, alone: bool = True) -> "ElementPath":
        """Returns the path to a child, with its number among those of its name, from 1 on."""
        segment = self.segment(name)
        indexed = f"{self.indexed}.{segment}"
        return ElementPath(
            f"{self.plain}.{segment}",
            indexed if alone else f"{indexed}.{number - 1}",
            f"{self.position}.{name}" if alone else f"{self.position}.{name}[{number}]",
            (*self.numbers, str(number)),
            self.depth + 1,
            self.is_escaping,
        )

    def attribute(self, name: str, value: str) -> Slot:
        """Returns the slot of an attribute."""
        segment = self.segment(name)
        plain, indexed = f"{self.plain}.{segment}", f"{self.indexed}.{segment}"
        return Slot(plain, indexed, (*self.numbers, "0"), f"{self.position}.@{name}", value)

    def text(self, number: int, value: str, *, alone: bool) -> Slot:
        """Returns the slot of a text; `alone` if the element has no other."""
        if alone:
            return Slot(self.plain, self.indexed, self.numbers, self.position, value)
        indexed, position = f"{self.indexed}.{number - 1}", f"{self.position}.text()[{number}]"
        return Slot(self.plain, indexed, (*self.numbers, str(number)), position, value)


@dataclass(slots=True)
class Walk:
    """Visits elements. `repeated` has the largest number of same-named children of one parent."""

    escape: bool
    repeated: dict[str, int] = field(default_factory=dict)
    limits: DocumentLimits = field(default_factory=DocumentLimits)

    def slots(
        self, node: XmlNode, path: ElementPath, items: list[ElementContent] | None = None
    ) -> Iterator[Slot]:
        """Yields an element's slots, of all content or `items`. Raises LimitError, ParseError."""
        if path.depth > trees.DOCUMENT_DEPTH_MAX:
            raise LimitError("DOCUMENT_DEPTH_MAX", trees.DOCUMENT_DEPTH_MAX)
        attributes = trees.attributes_of(node) if node.attrib else {}
        for name, value in attributes.items():
            if text := value.strip(trees.XML_BLANKS):
                yield path.attribute(name, text)
        if items is None:
            items = content_of(node)
        names = [trees.element_name(each) for each in items if not isinstance(each, list)]
        counts = Counter(names)
        if len(counts) < len(names):
            for name, count in counts.items():
                if count > 1:
                    self.note(f"{path.plain}.{path.segment(name)}", count)
        texts = sum(1 for each in items if isinstance(each, list) and text_of_run(each))
        seen: Counter[str] = Counter()
        number = 0
        for each in items:
            if isinstance(each, list):
                if text := text_of_run(each):
                    number += 1
                    yield path.text(number, text, alone=texts == 1)
                continue
            name = trees.element_name(each)
            seen[name] += 1
            alone = counts[name] == 1 and name not in attributes
            yield from self.slots(each, path.child(name, seen[name], alone=alone))

    def around(
        self, node: XmlNode, path: ElementPath, entries: str, until: XmlNode | None = None
    ) -> list[Slot]:
        """Returns the slots that an element around entries adds: attributes, text, leaf children.

        `until` limits its content to the part before this child. Numbers count only the children
        that add something.
        """
        content = content_of(node, until)
        items = [each for each in content if isinstance(each, list) or adds(each, entries)]
        found = list(self.slots(node, path, items))
        values_max = self.limits.context_values_max
        if len(found) > values_max:
            raise LimitError("context_values_max", values_max, len(found))
        return found

    def note(self, path: str, count: int) -> None:
        """Notes a number of elements with the same path below one parent."""
        if path in self.repeated or len(self.repeated) < REPEATED_NAMES_MAX:
            self.repeated[path] = max(count, self.repeated.get(path, 0))


def adds(node: XmlNode, entries: str) -> bool:
    """Whether a child adds something to entries beside it: a leaf with values that is no entry, or
    an entity, which `content_of` refuses.
    """
    if node.tag is etree.Entity:
        return True
    if any(isinstance(child.tag, str) for child in node) or trees.element_name(node) == entries:
        return False
    return any(value.strip(trees.XML_BLANKS) for value in (*node.attrib.values(), *node.itertext()))


def content_of(node: XmlNode, until: XmlNode | None = None) -> list[ElementContent]:
    """Returns an element's content up to the child `until`. Raises ParseError for own entities."""
    items: list[ElementContent] = []
    run: list[str | XmlNode] = [node.text] if node.text else []
    for child in node:
        tag = child.tag
        if isinstance(tag, str):
            if run:
                items.append(run)
                run = []
            items.append(child)
            if child is until:
                return items
        elif tag is etree.PI:
            run.append(child)
        elif tag is not etree.Comment:
            raise ParseError(child.sourceline or 1, 1, f"the entity {child.text}", "plain text")
        if child.tail:
            run.append(child.tail)
    if run:
        items.append(run)
    return items


def text_of_run(run: list[str | XmlNode]) -> str:
    """Returns the text between two elements, without the blanks around it."""
    return "".join(each for each in run if isinstance(each, str)).strip(trees.XML_BLANKS)


def outermost_repeated(root: XmlNode) -> str | None:
    """Returns the name of the outermost repeated element, None if there is none.

    Of the shallowest ones, twice below a parent, it is the most frequent, then the first.
    """
    level = [root]
    while level:
        most: Counter[str] = Counter()
        below: list[XmlNode] = []
        for node in level:
            children = [child for child in node if isinstance(child.tag, str)]
            below += children
            for name, count in Counter(map(trees.element_name, children)).items():
                if count > 1:
                    most[name] = max(count, most[name])
        if most:
            return most.most_common(1)[0][0]
        level = below
    return None


# --- JSON ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class ObjectWalk:
    """Visits the content of JSON. `repeated` counts the elements of arrays."""

    escape: bool
    repeated: dict[str, int] = field(default_factory=dict)

    def slots(self, content: Mapping[str, Any], path: ElementPath | None = None) -> Iterator[Slot]:
        """Yields the slots of an object. Raises LimitError and InvalidNotificationError."""
        depth = 1 if path is None else path.depth
        if depth > objects.OBJECT_DEPTH_MAX:
            raise LimitError("OBJECT_DEPTH_MAX", objects.OBJECT_DEPTH_MAX)
        for key, member in content.items():
            if path is not None and path.plain:
                below = path.child(key)
            else:
                top = ElementPath.to_root(key, escape=self.escape)
                below = replace(top, numbers=("1",), depth=depth + 1)
            yield from self._member(below, member)

    def _member(self, path: ElementPath, member: Any, before: str = "") -> Iterator[Slot]:
        if isinstance(member, list):
            yield from self._items(path, member, before)
        elif isinstance(member, dict) and not objects.is_typed(member):
            yield from self.slots(member, path)
        else:
            if isinstance(member, dict):
                try:
                    member = objects.value_of_json(member)
                except ValueError as error:
                    reason = f"expected {error}"
                    raise InvalidNotificationError(path.plain, dict(member), reason) from None
            yield path.text(1, member, alone=True)

    def _items(self, path: ElementPath, items: list[Any], before: str) -> Iterator[Slot]:
        if path.depth > objects.OBJECT_DEPTH_MAX:
            raise LimitError("OBJECT_DEPTH_MAX", objects.OBJECT_DEPTH_MAX)
        if len(items) > 1 and (
            path.plain in self.repeated or len(self.repeated) < REPEATED_NAMES_MAX
        ):
            self.repeated[path.plain] = max(len(items), self.repeated.get(path.plain, 0))
        for number, each in enumerate(items, start=1):
            mark = f"{before}{number}"
            item = replace(path, numbers=(*path.numbers[:-1], mark), depth=path.depth + 1)
            if len(items) > 1:
                indexed, position = f"{path.indexed}.{number - 1}", f"{path.position}[{number}]"
                item = replace(item, indexed=indexed, position=position)
            yield from self._member(item, each, f"{mark}-")


def outermost_array(content: Any) -> str | None:
    """Returns the path of the outermost array with several objects, joined by dots.

    Of several at one depth it is the longest, then the first. None if there is none.
    """
    level: list[tuple[str, Any]] = [("", content)]
    while level:
        found: list[tuple[int, str]] = []
        below: list[tuple[str, Any]] = []
        for path, each in level:
            for key, member in each.items():
                name = f"{path}.{key}" if path else key
                if isinstance(member, dict):
                    below.append((name, member))
                elif isinstance(member, list):
                    objects = sum(1 for item in member if isinstance(item, dict))
                    found += [(len(member), name)] if objects > 1 and "." not in key else []
        if found:
            return max(found, key=lambda each: each[0])[1]
        level = below
    return None

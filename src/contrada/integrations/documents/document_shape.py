"""The shape of a document in the body of its notification, from which the document is rebuilt.

Notifications of `index` and `daemon` hold the values of a document as attributes with unambiguous
names. The shape holds the rest: elements in order, namespaces, blanks, instructions, and a text if
its attribute differs from it (`1.0` became the number 1, or was renamed). It holds no names of
attributes, as the strategy generates them again.

The shape is msgpack: an array of a version, `xml` or `json`, the kind of document, the strategy,
the path to the entry, and the generated names around it. For XML all texts follow, each once, and
the structure, which refers to them by position: instructions before the root, the root, and
instructions behind it. An element is `[name, namespaces, attributes, content]`, the middle two
alternating names and values. A value is nil if an attribute holds it, `[before, behind]` with
blanks around it, false if dropped, or a text. In content `[target, text, 0]` is an instruction. For
JSON the content itself follows, with nil for a scalar that an attribute holds, others as JSON
bytes.

Source: Erenkrantz 2001 §5.2 (losses without it), §6.5.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, NamedTuple
from xml.sax.saxutils import escape

import msgspec
from lxml import etree

from contrada.errors import ContradaError, InputError, LimitError
from contrada.integrations.documents import document_slots as slots
from contrada.integrations.documents import element_tree as trees
from contrada.integrations.documents.document_slots import ElementPath, ObjectWalk, Walk
from contrada.integrations.documents.element_tree import XmlNode
from contrada.integrations.documents.naming_strategies import Named, Original, named
from contrada.model import Notification
from contrada.model.algebra import nested_objects as objects

SHAPE_TYPE: Final = "application/vnd.contrada.document+msgpack"
"""The content type of a body that is the shape of a document."""

VERSION: Final = 1

_MISSING: Final = object()
"""Marks an absent attribute."""

_LACKING: Final = "an attribute is missing that its shape asks for"

DROPPED: Final = object()
"""Marks an attribute that must not be published."""

SHAPE_CHARS_MAX: Final = 64 * 2**20
"""Characters of a rebuilt document; shapes may repeat texts often. Beyond it: LimitError."""

_PLACEHOLDER: Final = "x"

_FORMS: Final = ("xml", "json")
_NO_NAME: Final = re.compile(r"[\s<>/&'\"=?!]|^$")
_NO_CHARACTER: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_MALFORMED: Final = (LookupError, TypeError, ValueError, AttributeError, RuntimeError)


class NamesIn(NamedTuple):
    """The originals of the generated names of a notification; `kind` is that of its document."""

    kind: str
    names: dict[str, Original]


class _ShapeHead(msgspec.Struct, array_like=True):
    """The beginning of a shape. `way` is the path to the entry, nil for a whole document."""

    version: int
    form: str
    kind: str
    strategy: str
    path: list[Any] | None
    around: list[list[str]]
    texts: list[str]
    content: Any


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_ShapeHead).decode


class AboutDocument(NamedTuple):
    """The kind and strategy of a document, and the path and surroundings of an entry."""

    kind: str
    strategy: str
    path: ElementPath | None
    around: list[Named]


def shape_of_element(
    node: XmlNode, about: AboutDocument, names: Iterable[Named], found: Mapping[str, Any]
) -> bytes:
    """Returns the shape of an element; `names` are those of its slots.

    `found` holds the values of attributes, DROPPED for values that must not be published.
    """
    writer = _ShapeWriter(iter(names), found)
    content = [
        [writer.instruction(each) for each in _siblings(node, about, preceding=True)],
        writer.element(node, {}),
        [writer.instruction(each) for each in _siblings(node, about, preceding=False)],
    ]
    path = about.path
    packed = None if path is None else [path.plain, path.indexed, path.position, list(path.numbers)]
    around = [[name, *each] for name, each in renamed(about.around).items()]
    kind, strategy, texts = about.kind, about.strategy, list(writer.texts)
    return _encode(_ShapeHead(VERSION, "xml", kind, strategy, packed, around, texts, content))


def shape_of_object(
    content: Any, strategy: str, names: Iterable[Named], found: Mapping[str, Any]
) -> bytes:
    """Returns the shape of a JSON object."""
    shape = _shape_of_content(content, iter(names), found)
    return _encode(_ShapeHead(VERSION, "json", "json", strategy, None, [], [], shape))


def names_in(notification: Notification) -> NamesIn | None:
    """Returns the originals of a notification's generated names; None if its body is no shape.

    Names that it lacks are omitted. Cost: as the document. Raises InputError if it is damaged.
    """
    if notification.content_type != SHAPE_TYPE:
        return None
    head = _head_of(notification)
    with _readable():
        found = {name: Original(*rest) for name, *rest in head.around}
        found |= renamed(_named_again(head))
    return NamesIn(head.kind, {name: each for name, each in found.items() if name in notification})


def document_of(notification: Notification) -> bytes:
    """Returns the document of an `index` or `daemon` notification; with entries, the entry.

    XML has the same canonical form, without comments; JSON is an equal object. Raises InputError if
    the body is no shape, or if an attribute is missing.
    """
    if notification.content_type != SHAPE_TYPE:
        reason = "it has no shape, as those have that are made by the strategies index and daemon"
        raise InputError("notification", reason)
    head = _head_of(notification)
    with _readable():
        names = _named_again(head)
        values = (notification.get(each.name, _MISSING) for each in names)
        if head.form != "json":
            return _XmlWriter(head.texts, lambda: next(values, _MISSING)).document(head.content)
        content = _filled(head.content, lambda: next(values, _MISSING))
        return msgspec.json.encode(content)


def renamed(found: Iterable[Named]) -> dict[str, Original]:
    """Returns the originals of generated names."""
    return {name: Original(slot.plain, slot.position) for name, slot in found if name != slot.plain}


def text_of_value(value: object) -> str | None:
    """Returns the only text that reads as this value; None if it is no single value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, datetime):
        return objects.time_text(value)
    return str(value) if isinstance(value, int | str) else None


@contextmanager
def _readable() -> Iterator[None]:
    """Turns errors of a damaged shape into InputError."""
    try:
        yield
    except InputError:
        raise
    except (ContradaError, msgspec.MsgspecError, *_MALFORMED) as error:
        raise InputError("shape", f"damaged: {error}") from None


def _head_of(notification: Notification) -> _ShapeHead:
    with _readable():
        head = _decode(notification.body)
    if head.version != VERSION:
        raise InputError("shape", f"found version {head.version}, expected {VERSION}")
    if head.form not in _FORMS or head.strategy not in ("index", "daemon"):
        reason = f"found the form {head.form!r} of {head.strategy!r}"
        raise InputError("shape", f"{reason}, expected xml or json, of index or daemon")
    return head


def _named_again(head: _ShapeHead) -> list[Named]:
    """Returns the names of the slots of a shape, generated again."""
    if head.form == "json":
        content = _filled(head.content, lambda: None)
        return list(named(ObjectWalk(escape=True).slots(content), head.strategy, Counter()))
    data = _XmlWriter(head.texts, lambda: _PLACEHOLDER, is_naming=True).document(head.content)
    root = trees.parsed(data, instructions=True)
    path = ElementPath.to_root(trees.element_name(root), escape=True)
    if head.path is not None:
        plain, indexed, position, numbers = head.path
        path = ElementPath(plain, indexed, position, tuple(numbers), is_escaping=True)
    return list(named(Walk(escape=True).slots(root, path), head.strategy, Counter()))


# --- XML to a shape -------------------------------------------------------------------------------


class _ShapeWriter:
    """Writes elements as a shape, and collects their texts."""

    def __init__(self, names: Iterator[Named], found: Mapping[str, Any]) -> None:
        self._names, self._found = names, found
        self.texts: dict[str, int] = {}

    def text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def instruction(self, node: XmlNode) -> list[int]:
        return [self.text(str(node.target)), self.text(node.text or ""), 0]

    def element(self, node: XmlNode, outer: dict[str | None, str]) -> list[Any]:
        """Returns an element. `outer` holds the namespaces that are declared around it."""
        known = node.nsmap
        inherited = {*outer.items(), ("xml", trees.XML_NAMESPACE)}
        declared = {prefix: uri for prefix, uri in known.items() if (prefix, uri) not in inherited}
        declared |= dict.fromkeys((prefix for prefix in outer if prefix not in known), "")
        attributes = [
            part
            for name, value in _written_attributes(node)
            for part in (self.text(name), self._value(value))
        ]
        content: list[Any] = []
        for each in slots.content_of(node):
            if isinstance(each, list):
                content += self._run(each)
            else:
                content.append(self.element(each, known))
        spaces = [
            self.text(part) for prefix, uri in declared.items() for part in (prefix or "", uri)
        ]
        return [self.text(trees.element_name(node)), spaces, attributes, content]

    def _run(self, run: list[str | XmlNode]) -> list[Any]:
        if len(run) == 1 and isinstance(run[0], str):
            return [self._value(run[0])]
        if slots.text_of_run(run) and self._found.get(next(self._names).name) is DROPPED:
            return [False, *(self.instruction(each) for each in run if not isinstance(each, str))]
        return [
            self.text(each) if isinstance(each, str) else self.instruction(each) for each in run
        ]

    def _value(self, raw: str) -> Any:
        """Returns a value, which is a slot unless it is blank."""
        text = raw.strip(trees.XML_BLANKS)
        if not text:
            return self.text(raw)
        held = self._found.get(next(self._names).name)
        if held is DROPPED:
            return False
        if text_of_value(held) != text:
            return self.text(raw)
        if len(raw) == len(text):
            return None
        begin = raw.index(text[0])
        return [self.text(raw[:begin]), self.text(raw[begin + len(text) :])]


def _siblings(node: XmlNode, about: AboutDocument, *, preceding: bool) -> list[XmlNode]:
    """Returns the instructions beside a root."""
    if about.path is not None:
        return []
    found = [each for each in node.itersiblings(preceding=preceding) if each.tag is etree.PI]
    return found[::-1] if preceding else found


def _written_attributes(node: XmlNode) -> list[tuple[str, str]]:
    """Returns attributes by their written names, even if a namespace has two prefixes."""
    named = trees.attributes_of(node)
    prefixed = [uri for prefix, uri in node.nsmap.items() if prefix]
    if len(set(prefixed)) < len(prefixed):
        written = [str(node.xpath(f"name(@*[{n}])")) for n in range(1, len(named) + 1)]
        return list(zip(written, named.values(), strict=True))
    return list(named.items())


# --- a shape to XML -------------------------------------------------------------------------------

_IN_ATTRIBUTES: Final = {'"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}


class _XmlWriter:
    """Writes the XML of a shape; `value` gives the values of its slots in order.

    To name slots, each must have some content, even if its value was dropped.
    """

    def __init__(
        self, texts: list[str], value: Callable[[], Any], *, is_naming: bool = False
    ) -> None:
        self._texts, self._value, self._is_naming = texts, value, is_naming
        self._parts: list[str] = []
        self._size = 0

    def document(self, content: Any) -> bytes:
        before, element, behind = content
        for each in before:
            self._instruction(each)
        self._element(element)
        for each in behind:
            self._instruction(each)
        return "".join(self._parts).encode()

    def _put(self, part: str) -> None:
        self._size += len(part)
        if self._size > SHAPE_CHARS_MAX:
            raise LimitError("SHAPE_CHARS_MAX", SHAPE_CHARS_MAX)
        self._parts.append(part)

    def _text_at(self, position: Any) -> str:
        if type(position) is not int or position < 0:
            raise InputError("shape", f"damaged: found {position!r}, expected a text's position")
        return self._texts[position]

    def _name(self, position: Any) -> str:
        """Returns a text that is safe as an XML name."""
        name = self._text_at(position)
        if _NO_NAME.search(name):
            raise InputError("shape", f"damaged: found {name!r}, expected a name of XML")
        return name

    def _element(self, element: Any) -> None:
        position, spaces, attributes, content = element
        name = self._name(position)
        self._put(f"<{name}")
        for prefix, uri in zip(spaces[::2], spaces[1::2], strict=True):
            shown = escape(self._text_at(uri), _IN_ATTRIBUTES)
            is_default = not self._text_at(prefix)
            self._put(
                f' xmlns="{shown}"' if is_default else f' xmlns:{self._name(prefix)}="{shown}"'
            )
        for written, value in zip(attributes[::2], attributes[1::2], strict=True):
            shown = escape(self._text(value), _IN_ATTRIBUTES)
            self._put(f' {self._name(written)}="{shown}"')
        self._put(">")
        self._content(content)
        self._put(f"</{name}>")

    def _content(self, content: list[Any]) -> None:
        run: list[Any] = []
        for each in content:
            if isinstance(each, list) and len(each) == 4:
                self._run(run)
                run = []
                self._element(each)
            else:
                run.append(each)
        self._run(run)

    def _run(self, run: list[Any]) -> None:
        """Writes the content between two elements; instructions between texts stay."""
        is_one = len(run) == 1 and not (isinstance(run[0], list) and len(run[0]) == 3)
        if is_one or (run and run[0] is False):
            self._put(escape(self._text(run[0]), {"\r": "&#13;"}))
            run = run[1:]
        if any(
            self._text_at(each).strip(trees.XML_BLANKS) for each in run if isinstance(each, int)
        ):
            self._value()
        for each in run:
            if isinstance(each, int):
                self._put(escape(self._text_at(each), {"\r": "&#13;"}))
            else:
                self._instruction(each)

    def _instruction(self, instruction: Any) -> None:
        target, text, _ = instruction
        written = self._text_at(text)
        if "?>" in written:
            raise InputError("shape", f"damaged: found {written[:80]!r} in an instruction")
        self._put(f"<?{self._name(target)}{' ' * bool(written)}{written}?>")

    def _text(self, value: Any) -> str:
        if value is False:
            self._value()
            return _PLACEHOLDER if self._is_naming else ""
        if isinstance(value, int):
            text = self._text_at(value)
            if text.strip(trees.XML_BLANKS):
                self._value()  # It is a slot all the same.
            return text
        before, behind = (None, None) if value is None else value
        found = text_of_value(self._value())
        if found is None:
            raise InputError("notification", _LACKING)
        if odd := _NO_CHARACTER.search(found):
            raise InputError("notification", f"found {odd.group()!r}, which XML cannot hold")
        if before is None or behind is None:
            return found
        return f"{self._text_at(before)}{found}{self._text_at(behind)}"


# --- JSON ---------------------------------------------------------------------------------------


def _shape_of_content(content: Any, names: Iterator[Named], found: Mapping[str, Any]) -> Any:
    """Returns content without the scalars that attributes hold."""
    if isinstance(content, list):
        return [_shape_of_content(each, names, found) for each in content]
    if isinstance(content, dict) and not objects.is_typed(content):
        return {key: _shape_of_content(each, names, found) for key, each in content.items()}
    held = found.get(next(names).name, _MISSING)
    if held is DROPPED:
        return msgspec.json.encode(None)
    if held is _MISSING or type(held) is tuple or type(held) is list:
        return msgspec.json.encode(content)
    shown = objects.json_value(held)
    is_held = shown == content and type(shown) is type(content)
    return None if is_held else msgspec.json.encode(content)


def _filled(shape: Any, value: Callable[[], Any]) -> Any:
    """Returns the content of a shape; `value` is called for each scalar, and used for nil."""
    if isinstance(shape, list):
        return [_filled(each, value) for each in shape]
    if isinstance(shape, dict):
        return {key: _filled(each, value) for key, each in shape.items()}
    held = value()
    if held is _MISSING and shape is None:
        raise InputError("notification", _LACKING)
    return objects.json_value(held) if shape is None else msgspec.json.decode(shape)

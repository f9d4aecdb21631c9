"""Encodings of the model as msgpack and as JSON: versioned, bounded, safe for untrusted input.

msgpack is for the wire: `[VERSION, kind, …]` with value sets as cuts and expressions, so that
nothing is parsed on the way. JSON is for people and other programs: notifications as objects,
everything else in the text syntax. Decoded values are checked as a user's are; anything else raises
EncodingError, and nothing is executed or looked up by name.

In msgpack an unregistered operator is kept as received, so that it is forwarded unchanged. JSON has
only its text, which needs a registered operator.
"""

import sys
import typing
from array import array
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import msgspec

from contrada.errors import ContradaError, EncodingError, shortened
from contrada.model.algebra.advertisement import Advertisement, Query
from contrada.model.algebra.attributes import LARGE, check_span, good_names_and_marks
from contrada.model.algebra.filter import Filter, FilterSet
from contrada.model.algebra.nested_objects import json_values, value_of_json
from contrada.model.algebra.notation import parsers, printers
from contrada.model.algebra.notification import (
    BEST_EFFORT,
    PRIORITY_DEFAULT,
    UNSTAMPED,
    Envelope,
    Notification,
    check_text,
    from_parts,
    store_packed,
)
from contrada.model.algebra.pattern import Pattern
from contrada.model.algebra.value_set import ValueSet, of_cuts
from contrada.model.domains import line, values
from contrada.model.domains.line import Cut, Cuts
from contrada.model.domains.values import check_name
from contrada.model.languages import language
from contrada.model.languages.atoms import Atom, atom_of, registry
from contrada.model.languages.language import Every, Language, Literal, Pieces
from contrada.model.languages.work_budget import spend
from contrada.model.native import NATIVE

FewRequested: TypeAlias = tuple[int, int, tuple[Notification, ...], int]
"""Number, wait, notifications and size of a request, as of `plain_scanner.few_requested`."""

pack_asked: Final[Callable[..., bytes | None] | None] = getattr(NATIVE, "pack_asked", None)
pack_plain: Final[Callable[..., list[Any]] | None] = getattr(NATIVE, "pack_plain", None)
stamp_plain: Final[Callable[..., list[Any]] | None] = getattr(NATIVE, "stamp_plain", None)
stamp_copy: Final[Callable[..., Any] | None] = getattr(NATIVE, "stamp_copy", None)
plain_fields: Final[Callable[..., dict[str, Any] | None] | None] = getattr(
    NATIVE, "plain_fields", None
)
plain_values: Final[Callable[..., tuple[Any, ...] | None] | None] = getattr(
    NATIVE, "plain_values", None
)
plain_entries: Final[Callable[..., list[Any]] | None] = getattr(NATIVE, "plain_entries", None)
few_requested: Final[Callable[..., FewRequested | None] | None] = getattr(
    NATIVE, "few_requested", None
)
plain_parts: Final[Callable[..., int] | None] = getattr(NATIVE, "plain_parts", None)
published_count: Final[Callable[[bytes], int] | None] = getattr(NATIVE, "published_count", None)
published_parts: Final[Callable[..., int] | None] = getattr(NATIVE, "published_parts", None)
"""The compiled codec of plain notifications; without it all are handled one by one."""

VERSION: Final[typing.Literal[1]] = 1
ENCODING_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of an encoding that is read. Beyond it: EncodingError."""

SET_PARTS_MAX: Final = 100_000
"""Cuts and parts of one value set that is read. Beyond it: EncodingError."""

FILTERS_READ_MAX: Final = 100_000
"""Filters of a filter set that is read. Beyond it: EncodingError."""

_BYTES_PER_STEP: Final = 8
"""Bytes of anything but a notification that are read in a step of work."""

FEW_BYTES_MAX: Final = 65_536
"""Bytes of a request to publish up to 15 notifications that is read at once. Beyond it: one by one.
"""

SETS_KEPT_MAX: Final = 16_384
"""Decoded value sets that are cached, so that filters share equal ones: so many of texts, and so
many others. Beyond it: the least recently used is made anew."""

PLAIN_BYTES_MAX: Final = 4_096
"""Bytes of a filter whose value sets are kept when it is read. Beyond it: all are made anew."""

Encodable: TypeAlias = (
    Notification | Filter | FilterSet | Advertisement | Query | Pattern | ValueSet
)

_KINDS: Final[dict[type, str]] = {
    Notification: "notification",
    Filter: "filter",
    FilterSet: "filter_set",
    Advertisement: "advertisement",
    Query: "query",
    Pattern: "pattern",
    ValueSet: "value_set",
}

_msgpack_encoder: Final = msgspec.msgpack.Encoder()
_head_decoder: Final = msgspec.msgpack.Decoder(tuple[int, str, msgspec.Raw])


def to_msgpack(thing: Encodable) -> bytes:
    """Encodes as msgpack. Cost: linear; the bytes of a notification are copied unchanged."""
    if isinstance(thing, Notification):
        return thing.packed or _packed(thing)
    kind = _KINDS[type(thing)]
    return _msgpack_encoder.encode([VERSION, kind, _PACK[kind](thing)])


def from_msgpack(data: bytes) -> Encodable:
    """Decodes msgpack. Raises EncodingError with the reason. Cost: linear."""
    _check_size("msgpack", data)
    try:
        if (plain := _plain_filter(data)) is not None:
            return plain
        spend(len(data) // _BYTES_PER_STEP)
        version, kind, payload = _head_decoder.decode(data)
        if version != VERSION:
            raise EncodingError("msgpack", f"version {version!r}, expected {VERSION}")
        if kind == "notification":
            return notification_from_msgpack(data)
        return _UNPACK[kind](_DECODERS[kind].decode(payload))
    except EncodingError:
        raise
    except (ContradaError, msgspec.DecodeError, *_MALFORMED) as error:
        raise EncodingError("msgpack", _reason(error)) from None


def to_json(thing: Encodable) -> str:
    """Encodes as one line of JSON; identical notifications give identical lines."""
    kind = _KINDS[type(thing)]
    shown = _json_notification(thing) if isinstance(thing, Notification) else str(thing)
    return msgspec.json.encode({"contrada": VERSION, kind: shown}).decode()


def from_json(text: str | bytes) -> Encodable:
    """Decodes JSON. Raises EncodingError with the reason."""
    try:
        data = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise EncodingError("JSON", "a lone surrogate is not text") from None
    _check_size("JSON", data)
    try:
        decoded = msgspec.json.decode(data)
    except (msgspec.DecodeError, *_MALFORMED) as error:
        raise EncodingError("JSON", _reason(error)) from None
    return _from_decoded(decoded)


def _from_decoded(decoded: Any) -> Encodable:
    try:
        (kind,) = decoded.keys() - {"contrada"}
        if decoded["contrada"] != VERSION:
            raise EncodingError("JSON", f"expected version {VERSION} at 'contrada'")
        return _READ_JSON[kind](decoded[kind])
    except EncodingError:
        raise
    except (ContradaError, AttributeError, *_MALFORMED) as error:
        raise EncodingError("JSON", _reason(error)) from None


def digest(of: Filter | ValueSet) -> bytes:
    """Returns 16 bytes that are the same for equal sets of intervals in every process.

    Equal sets with operators on text that are no intervals may differ in it.
    """
    if isinstance(of, ValueSet):
        packed = to_msgpack(of.canonical())
    else:
        sets = {name: value_set.canonical() for name, value_set in of.sets.items()}
        packed = to_msgpack(Filter.of_sets(sets))
    return blake2b(packed, digest_size=16).digest()


_MALFORMED: Final = (KeyError, ValueError, TypeError, IndexError, RecursionError)


def _reason(error: Exception) -> str:
    if isinstance(error, msgspec.DecodeError):
        return shortened(str(error))
    if isinstance(error, ContradaError):
        return str(error)
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return f"not in the form of version {VERSION}"


def _check_size(what: str, data: bytes) -> None:
    if len(data) > ENCODING_BYTES_MAX:
        reason = f"{len(data)} bytes, more than ENCODING_BYTES_MAX = {ENCODING_BYTES_MAX}"
        raise EncodingError(what, reason)


def _expect(condition: bool, what: str) -> None:
    if not condition:
        raise EncodingError("msgpack", what)


# --- msgpack: notifications -------------------------------------------------------------------


class _Packed(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """The payload of a notification, its attributes undecoded."""

    attributes: msgspec.Raw
    envelope: Envelope
    body: bytes
    content_type: str


class _PackedNotification(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """The whole encoding of a notification."""

    version: typing.Literal[1]
    kind: typing.Literal["notification"]
    payload: _Packed


_notification_decoder: Final = msgspec.msgpack.Decoder(_PackedNotification)
_parts_decoder: Final = msgspec.msgpack.Decoder()


def _packed(of: Notification) -> bytes:
    parts = _Packed(msgspec.Raw(of.span), of.envelope, of.body, of.content_type)
    packed = _msgpack_encoder.encode(_PackedNotification(VERSION, "notification", parts))
    store_packed(of, packed)
    return packed


_TIME_AT: Final = -len(
    _msgpack_encoder.encode((values.TIME_MAX_US, None, PRIORITY_DEFAULT, BEST_EFFORT, b"", ""))[1:]
)
"""The position of the time, from the end, without a body. No attribute with as many bytes can begin
so near the end."""


_TAIL: Final = _msgpack_encoder.encode((None, PRIORITY_DEFAULT, BEST_EFFORT, b"", ""))[1:]
"""The usual bytes behind the time, without a body."""


def published_us(packed: bytes) -> int:
    """Returns the time of publication of a checked notification: 0 if its envelope has none."""
    if packed.endswith(_TAIL) and packed[_TIME_AT] == LARGE:
        return int.from_bytes(packed[_TIME_AT + 1 : -len(_TAIL)])
    return _notification_decoder.decode(packed).payload.envelope.at_us


def parts_in(packed: bytes) -> tuple[dict[str, Any], list[Any], bytes, str]:
    """Returns the attributes, envelope, body and content type of a checked notification. Several
    values are a list. Cost: a third of a microsecond.
    """
    return _parts_decoder.decode(packed)[2]  # type: ignore[no-any-return]


def notification_from_msgpack(data: bytes) -> Notification:
    """Decodes a notification, and nothing else; as `from_msgpack`, in C.

    It may be forwarded without its values being decoded. Raises EncodingError with the reason.
    Cost: two microseconds.
    """
    _check_size("msgpack", data)
    try:
        packed = _notification_decoder.decode(data).payload
        span = bytes(packed.attributes)
        check_span(span)
        if packed.content_type:
            check_text("@content_type", packed.content_type)
        return from_parts(span, packed.body, packed.content_type, packed.envelope, data)
    except EncodingError:
        raise
    except (ContradaError, msgspec.DecodeError, *_MALFORMED) as error:
        raise EncodingError("msgpack", _reason(error)) from None


def entries_to_read(encodings: list[bytes], begin: int, beside: int) -> list[tuple[Any, int, Any]]:
    """Returns the first plain notifications of a list from `begin`, as entries of a queue.

    The others are checked one by one, by `notification_from_msgpack`; without the compiled codec
    all are. The size of an entry is that of its encoding and `beside`.
    """
    if plain_entries is None:
        return []
    return plain_entries(encodings, begin, good_names_and_marks, Notification, beside)


def few_reader(frame_head: bytes) -> Callable[[bytes | bytearray, int], FewRequested | None] | None:
    """Returns `plain_scanner.few_requested` for frames with this head, as a function of the stream
    and the place; None if not compiled.
    """
    if few_requested is None:
        return None
    known = good_names_and_marks
    return partial(few_requested, frame_head, FEW_BYTES_MAX, known, Notification, UNSTAMPED)


def parts_of_batch(joined: bytearray, starts: "array[int]", parts: "array[int]") -> int:
    """Writes the parts of the notifications of a batch, as `plain_scanner.plain_parts`.

    0 if one of them must be checked by itself, as one with marks of types; always without the
    compiled codec.
    """
    return 0 if plain_parts is None else plain_parts(joined, starts, parts, set())


def parts_of_message(message: bytes, count_min: int, parts_each: int) -> tuple[int, "array[int]"]:
    """Returns the parts of the notifications of a message that publishes them, as `parts_of_batch`.

    0 also for a message of another kind, or of fewer than `count_min`.
    """
    count = 0 if published_count is None else published_count(message)
    if published_parts is None or count < count_min:
        return 0, array("q")
    parts = array("q", bytes(8 * parts_each * count))
    return published_parts(message, parts, set()), parts


def notification_to_read(data: bytes) -> Notification:
    """As `notification_from_msgpack`; a fifth of its cost if the notification is plain."""
    entries = entries_to_read([data], 0, 0)
    return entries[0][0] if entries else notification_from_msgpack(data)


# --- msgpack: value sets and their products ---------------------------------------------------


class _PackedLanguage(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """The wire form of a language, its kind first.

    The types describe all valid parts, so that others are refused before they are built: maps with
    arrays of one hash as keys take quadratic time.
    """


_PackedCut: TypeAlias = tuple[int | float | bool | bytes, ...]
_PackedCuts: TypeAlias = typing.Annotated[list[_PackedCut], msgspec.Meta(max_length=SET_PARTS_MAX)]


class _IsForm(_PackedLanguage, tag="is"):
    operator: str
    constant: bytes


class _NotForm(_IsForm, tag="not"):
    pass


class _PiecesForm(_PackedLanguage, tag="pieces"):
    cuts: _PackedCuts


class _EveryForm(_PackedLanguage, tag="every"):
    parts: list["_AnyForm"]


class _SomeForm(_EveryForm, tag="some"):
    pass


_AnyForm: TypeAlias = _IsForm | _NotForm | _PiecesForm | _EveryForm | _SomeForm
_PackedSet: TypeAlias = tuple[_PackedCuts, _AnyForm | None]
_PackedSets: TypeAlias = dict[str, _PackedSet]
_Members: TypeAlias = typing.Annotated[list[_PackedSets], msgspec.Meta(max_length=FILTERS_READ_MAX)]

_DECODERS: Final[dict[str, msgspec.msgpack.Decoder[Any]]] = {
    "filter": msgspec.msgpack.Decoder(_PackedSets),
    "filter_set": msgspec.msgpack.Decoder(_Members),
    "advertisement": msgspec.msgpack.Decoder(_PackedSets),
    "query": msgspec.msgpack.Decoder(_PackedSets),
    "pattern": msgspec.msgpack.Decoder(tuple[_Members, list[str], int | None, bool]),
    "value_set": msgspec.msgpack.Decoder(_PackedSet),
}


def _pack_set(of: ValueSet) -> tuple[Cuts, list[Any] | None]:
    return of.line, None if of.text is None else _pack_language(of.text)


def _pack_language(of: Language) -> list[Any]:
    if isinstance(of, Pieces):
        return ["pieces", of.cuts]
    if isinstance(of, Literal):
        return ["is" if of.positive else "not", *of.atom]
    name = "every" if isinstance(of, Every) else "some"
    return [name, [_pack_language(part) for part in of.parts]]


def _unpack_set(packed: _PackedSet) -> ValueSet:
    spend(5)
    cuts, text = packed
    if text is None:
        return of_cuts(_unpack_cuts(cuts))
    left = [SET_PARTS_MAX]
    expression = _unpack_language(text, left, language.NESTING_MAX)
    held = line.intersection(_unpack_cuts(cuts), line.NOT_TEXT)
    return of_cuts(held, expression)


def _unpack_cuts(packed: _PackedCuts) -> Cuts:
    spend(2 * len(packed))
    cuts = tuple(map(_unpack_cut, packed))
    try:
        line.check(cuts)
    except ValueError as error:
        raise EncodingError("msgpack", str(error)) from None
    return cuts


def _unpack_cut(packed: _PackedCut) -> Cut:
    """Returns a cut in its held form: an equal number as an integer."""
    if len(packed) == 1:
        return _FIRST_CUTS.get(packed, packed)  # type: ignore[arg-type]
    if len(packed) == 2 and packed[0] == values.NUMBER and type(packed[1]) is float:
        return (values.NUMBER, values.plain_number(packed[1]))
    return packed  # type: ignore[return-value]


_FIRST_CUTS: Final[dict[Cut, Cut]] = {(tag,): (tag,) for tag in range(len(values.DOMAIN_NAMES))}


def _unpack_language(form: _AnyForm, left: list[int], levels: int) -> Language:
    """Returns an expression in normal form; bounded in parts and in depth."""
    left[0] -= 1
    _expect(left[0] >= 0, f"at most SET_PARTS_MAX = {SET_PARTS_MAX} parts")
    spend(5)
    _expect(levels >= 0, f"at most NESTING_MAX = {language.NESTING_MAX} levels")
    if isinstance(form, _IsForm):
        known = registry.find(form.operator) is not None
        atom = (atom_of if known else Atom)(form.operator, form.constant)
        return Literal(atom, not isinstance(form, _NotForm))
    if isinstance(form, _PiecesForm):
        return Pieces(line.intersection(_unpack_cuts(form.cuts), line.ALL_TEXT))
    join = language.some if isinstance(form, _SomeForm) else language.every
    return join([_unpack_language(part, left, levels - 1) for part in form.parts])


def _plain_filter(data: bytes) -> Filter | None:
    """Decodes a filter of some plain intervals; None for others, and for faults."""
    if len(data) > PLAIN_BYTES_MAX or data[: len(_FILTER_HEAD)] != _FILTER_HEAD:
        return None
    try:
        sets = _sets_decoder.decode(memoryview(data)[len(_FILTER_HEAD) :])
        if data[len(_FILTER_HEAD)] != 0x80 + len(sets):  # As in the header of a short map.
            return None
        return Filter.of_sets({_name(name): _plain_set(bytes(sets[name])) for name in sets})
    except (ContradaError, msgspec.DecodeError, *_MALFORMED):
        return None


_FILTER_HEAD: Final = _msgpack_encoder.encode([VERSION, "filter"]).replace(b"\x92", b"\x93")
_sets_decoder: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])


def _read_plain_set(packed: bytes) -> ValueSet:
    """Decodes a set of some intervals. Raises EncodingError for others: operators may change."""
    cuts, text = _DECODERS["value_set"].decode(packed)
    _expect(text is None, "intervals")
    return of_cuts(_unpack_cuts(cuts))


def _plain_set(packed: bytes) -> ValueSet:
    """As `_read_plain_set`, cached. Names recur, bounds hardly do: these evict only each other."""
    read = _text_set if packed.startswith(_TEXT_SET_HEAD) else _other_set
    return read(packed)


_text_set: Final = lru_cache(maxsize=SETS_KEPT_MAX)(_read_plain_set)
_other_set: Final = lru_cache(maxsize=SETS_KEPT_MAX)(_read_plain_set)
_TEXT_SET_HEAD: Final = _msgpack_encoder.encode((((values.TEXT, b""),) * 2, None))[:4]
"""The first bytes of an interval of texts."""


def _pack_sets(of: Filter | Advertisement | Query) -> dict[str, Any]:
    return {name: _pack_set(value_set) for name, value_set in of.sets.items()}


def _unpack_sets(packed: _PackedSets) -> dict[str, ValueSet]:
    spend(5)
    return {_name(name): _unpack_set(value_set) for name, value_set in packed.items()}


def _name(name: str) -> str:
    """Returns the cached name: many filters have it, and decoding makes it anew for each."""
    return sys.intern(check_name(name))


def _pack_pattern(of: Pattern) -> list[Any]:
    return [[_pack_sets(part) for part in of.filters], list(of.by), of.within_us, of.every]


def _unpack_pattern(packed: tuple[list[_PackedSets], list[str], int | None, bool]) -> Pattern:
    filters, by, within_us, every = packed
    parts = [Filter.of_sets(_unpack_sets(part)) for part in filters]
    return Pattern(parts, by=by, within_us=within_us, every=every)


_PACK: Final[dict[str, Callable[[Any], Any]]] = {
    "filter": _pack_sets,
    "filter_set": lambda of: [_pack_sets(member) for member in of.filters],
    "advertisement": _pack_sets,
    "query": _pack_sets,
    "pattern": _pack_pattern,
    "value_set": _pack_set,
}

_UNPACK: Final[dict[str, Callable[[Any], Encodable]]] = {
    "filter": lambda payload: Filter.of_sets(_unpack_sets(payload)),
    "filter_set": lambda payload: FilterSet(Filter.of_sets(_unpack_sets(p)) for p in payload),
    "advertisement": lambda payload: Advertisement.of_sets(_unpack_sets(payload)),
    "query": lambda payload: Query.of_sets(_unpack_sets(payload)),
    "pattern": _unpack_pattern,
    "value_set": _unpack_set,
}


# --- JSON -------------------------------------------------------------------------------------


def _json_notification(of: Notification) -> dict[str, Any]:
    envelope = of.envelope
    shown: dict[str, Any] = {
        "attributes": {name: json_values(of[name]) for name in sorted(of)},
        "envelope": {name: getattr(envelope, name) for name in Envelope.__struct_fields__},
    }
    if of.body:
        shown["body"] = of.body.hex()
    if of.content_type:
        shown["content_type"] = of.content_type
    return shown


def _read_json_value(shown: Any) -> Any:
    if isinstance(shown, list):
        return [_read_json_value(each) for each in shown]
    return value_of_json(shown)


def _read_json_notification(payload: Mapping[str, Any]) -> Notification:
    attributes = payload["attributes"]
    return Notification.from_attributes(
        {name: _read_json_value(value) for name, value in attributes.items()},
        bytes.fromhex(payload.get("body", "")),
        payload.get("content_type", ""),
        Envelope(**payload.get("envelope", {})),
    )


_READ_JSON: Final[dict[str, Callable[[Any], Encodable]]] = {
    "notification": _read_json_notification,
    "filter": Filter,
    "filter_set": FilterSet,
    "advertisement": Advertisement,
    "query": Query,
    "pattern": Pattern,
    "value_set": ValueSet.parse,
}


def notification_from_json(text: str | bytes) -> Notification:
    """Decodes a notification from JSON. Raises EncodingError, also for other things."""
    return _only_notification(from_json(text))


def notification_of_decoded(decoded: Any) -> Notification:
    """As `notification_from_json`, of JSON that is decoded already."""
    return _only_notification(_from_decoded(decoded))


def _only_notification(found: Encodable) -> Notification:
    if not isinstance(found, Notification):
        raise EncodingError("JSON", f"expected a notification, found a {_KINDS[type(found)]}")
    return found


parsers[Notification] = notification_from_json
printers[Notification] = to_json

"""Accumulators: the combined values of one group of items: a count, a sum, the best items.

An *accumulator* takes items and other accumulators of its kind, in any order and any grouping, with
the same result. Sums are exact: every finite double is a whole multiple of 2^-1074, and Python's
integers are unbounded. Only the result is rounded, once, and correctly. Distinct values are kept as
the smallest hashes (a theta sketch), which do not depend on the order either.

Each accumulator encodes itself as a plain value for msgpack; decoding checks it.

Source: CU-CS-948-03 §8 (aggregation inside the network).
"""

import math
from abc import ABC, abstractmethod
from functools import cache
from typing import Annotated, Any, Final, Self

import msgspec

from contrada.errors import EncodingError, LimitError, MissingRequirementError
from contrada.model import Notification, to_msgpack
from contrada.model.codec import notification_from_msgpack
from contrada.model.domains import values
from contrada.model.domains.values import Key

TOTAL_BYTES_MAX: Final = 272
"""Bytes of an exact sum, as of 2^63 of the largest doubles. Beyond it: EncodingError."""

SKETCH_HASHES_LOG2: Final = 12
"""The logarithm of the distinct values that are counted exactly: 4,096. Beyond it: their number is
estimated, with a standard error of 1.6 %."""

COUNT_MAX: Final = 2**63 - 1
"""Items that a partial result counts. Beyond it: LimitError, and the query fails."""

_SCALE: Final = 1074
"""Every finite double is a whole multiple of 2^-1074."""

_encode: Final = msgspec.msgpack.Encoder().encode


class Accumulator(ABC):
    """The combined values of one attribute in one group of items."""

    __slots__ = ()

    @abstractmethod
    def add(self, keys: tuple[Key, ...], item: Notification) -> int:
        """Takes an item with these values of the attribute. Returns its growth in bytes."""

    @abstractmethod
    def combine(self, other: Self) -> int:
        """Takes the contents of another. Returns its growth in bytes. Raises LimitError."""

    @abstractmethod
    def packed(self) -> Any:
        """Returns its contents, for msgpack."""

    @abstractmethod
    def restore(self, packed: msgspec.Raw) -> int:
        """Decodes contents into a new one. Raises EncodingError, and as msgspec for other types."""

    @abstractmethod
    def result(self) -> Any:
        """Returns the result; None without a value."""

    skipped: int = 0
    """The number of values that it could not take."""

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The bounds of an estimate, right 19 times of 20; None if the result is exact."""
        return None


_Natural = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
_PackedKey = tuple[_Natural, bool | int | float | bytes]


class Counted(Accumulator):
    """The number of items, or of items with the attribute."""

    __slots__ = ("_count", "_every")

    def __init__(self, *, every: bool) -> None:
        self._every = every
        self._count = 0

    def add(self, keys: tuple[Key, ...], item: Notification) -> int:
        self._count += bool(keys) or self._every
        return 0

    def combine(self, other: Self) -> int:
        self._count = _add_counts(self._count, other._count)
        return 0

    def packed(self) -> int:
        return self._count

    def restore(self, packed: msgspec.Raw) -> int:
        self._count = msgspec.msgpack.decode(packed, type=_Natural)
        return 0

    def result(self) -> int:
        return self._count


class _PackedTotal(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    integers: _Natural
    doubles: _Natural
    highest: _Natural
    lowest: _Natural
    skipped: _Natural
    whole: Annotated[bytes, msgspec.Meta(max_length=TOTAL_BYTES_MAX)]
    parts: Annotated[bytes, msgspec.Meta(max_length=TOTAL_BYTES_MAX)]


_COUNTS: Final = ("_integers", "_doubles", "_highest", "_lowest", "skipped")


class Total(Accumulator):
    """The sum or the mean of numbers, exact until rounded.

    Other values, NaN among them, are skipped and counted. An infinity is the sum; both kinds give
    NaN. A sum is an int if all numbers are, of any size; else the double nearest to the exact sum,
    an infinity beyond the doubles. A mean always is such a double.
    """

    __slots__ = ("_doubles", "_highest", "_integers", "_is_mean", "_lowest", "_sums", "skipped")

    def __init__(self, *, is_mean: bool = False) -> None:
        self._is_mean = is_mean
        self._integers = self._doubles = self._highest = self._lowest = self.skipped = 0
        self._sums = [0, 0]  # of the integers, and of the doubles in units of 2^-1074

    def add(self, keys: tuple[Key, ...], item: Notification) -> int:
        """Counts each value. Cost: about a microsecond for a double that is no integer."""
        for tag, number in keys:
            if tag != values.NUMBER:
                self.skipped += 1
            elif type(number) is int:
                self._integers += 1
                self._sums[0] += number
            elif math.isinf(number):  # type: ignore[arg-type]
                self._highest += number > 0  # type: ignore[operator]
                self._lowest += number < 0  # type: ignore[operator]
            else:
                over, under = number.as_integer_ratio()  # type: ignore[union-attr]
                self._doubles += 1
                self._sums[1] += over << (_SCALE + 1 - under.bit_length())
        return 0

    def combine(self, other: Self) -> int:
        for name in _COUNTS:
            setattr(self, name, _add_counts(getattr(self, name), getattr(other, name)))
        self._sums = [a + b for a, b in zip(self._sums, other._sums, strict=True)]
        return 0

    def packed(self) -> _PackedTotal:
        counts = [getattr(self, name) for name in _COUNTS]
        return _PackedTotal(*counts, *map(_bytes_of, self._sums))

    def restore(self, packed: msgspec.Raw) -> int:
        held = msgspec.msgpack.decode(packed, type=_PackedTotal)
        for name in _COUNTS:
            setattr(self, name, getattr(held, name.removeprefix("_")))
        sums = held.whole, held.parts
        self._sums = [int.from_bytes(each, "little", signed=True) for each in sums]
        return 0

    def result(self) -> int | float | None:
        """Returns the sum; or the mean, None without a number."""
        count = self._integers + self._doubles + self._highest + self._lowest
        if self._is_mean and not count:
            return None
        if self._highest and self._lowest:
            return math.nan
        if self._highest or self._lowest:
            return math.inf if self._highest else -math.inf
        if not self._is_mean and not self._doubles:
            return self._sums[0]
        exact = (self._sums[0] << _SCALE) + self._sums[1]
        try:
            return exact / ((count if self._is_mean else 1) << _SCALE)  # Correctly rounded.
        except OverflowError:
            return math.inf if exact > 0 else -math.inf


class Extreme(Accumulator):
    """The least or greatest value: null, false, true, NaN, numbers, times, texts."""

    __slots__ = ("_key", "_least")

    def __init__(self, *, least: bool) -> None:
        self._least = least
        self._key: Key | None = None

    def add(self, keys: tuple[Key, ...], item: Notification) -> int:
        for key in keys:
            self._take(key)
        return 0

    def combine(self, other: Self) -> int:
        if other._key is not None:
            self._take(other._key)
        return 0

    def _take(self, key: Key) -> None:
        if self._key is None or (key < self._key if self._least else key > self._key):
            self._key = key

    def packed(self) -> Key | None:
        return self._key

    def restore(self, packed: msgspec.Raw) -> int:
        held = msgspec.msgpack.decode(packed, type=_PackedKey | None)
        self._key = None if held is None else read_key(held)
        if held is not None and held[0] == values.ABSENT:
            raise EncodingError("a partial result", "an extreme value that is absent")
        return 0

    def result(self) -> Any:
        return None if self._key is None else values.value_of(self._key)


class Best(Accumulator):
    """The k items with the least or the greatest values of the attribute, the best first.

    Values are ordered as in `Extreme`. An item with several values counts by its best one. Equal
    values are ordered by the bytes of the items' encodings. An item may appear several times. Items
    without the attribute are not among the k. While there is room, they follow the others, for
    callers who want all items in order.
    """

    __slots__ = ("_attribute", "_bound", "_held", "_items_max", "_least")

    def __init__(self, attribute: str, items_max: int, *, least: bool) -> None:
        self._attribute = attribute
        self._items_max = items_max
        self._least = least
        self._held: list[tuple[Key, bytes]] = []
        self._bound: Key | None = None
        """Values worse than this cannot be among the k."""

    def add(self, keys: tuple[Key, ...], item: Notification) -> int:
        """Cost: an encoding for a candidate; else a comparison."""
        key, bound = self._key(keys), self._bound
        if bound is not None and (key > bound if self._least else key < bound):
            return 0
        packed = bytes(to_msgpack(item))
        self._held.append((key, packed))
        return len(packed) + self._trim(2 * self._items_max)

    def _key(self, keys: tuple[Key, ...]) -> Key:
        return (min if self._least else max)(keys) if keys else values.ABSENT_KEY

    def combine(self, other: Self) -> int:
        self._held += other._held
        added = sum(len(packed) for _, packed in other._held)
        return added + self._trim(2 * self._items_max)

    def _trim(self, held_max: int = 0) -> int:
        """Keeps only the best, in order, if more are held. Returns its growth in bytes."""
        held = self._held
        if len(held) < held_max:
            return 0
        held.sort(key=lambda each: each[1])
        held.sort(key=lambda each: each[0], reverse=not self._least)
        held.sort(key=lambda each: each[0] == values.ABSENT_KEY)
        left = held[self._items_max :]
        del held[self._items_max :]
        if len(held) == self._items_max and held[-1][0] != values.ABSENT_KEY:
            self._bound = held[-1][0]
        return -sum(len(packed) for _, packed in left)

    def packed(self) -> list[bytes]:
        self._trim()
        return [packed for _, packed in self._held]

    def restore(self, packed: msgspec.Raw) -> int:
        items = msgspec.msgpack.decode(packed, type=list[bytes])
        if len(items) > self._items_max:
            raise EncodingError("a partial result", f"more than {self._items_max} best items")
        for each in items:
            keys = present_keys(notification_from_msgpack(each), self._attribute)
            self._held.append((self._key(keys), each))
        self._trim()
        return sum(map(len, items))

    def result(self) -> list[Notification]:
        return [each for each in self.ordered() if self._attribute in each]

    def ordered(self) -> list[Notification]:
        """Returns the items, followed by those without the attribute."""
        self._trim()
        return [notification_from_msgpack(packed) for _, packed in self._held]


class Distinct(Accumulator):
    """The number of distinct values by 63-bit hashes, exact up to 2^SKETCH_HASHES_LOG2."""

    __slots__ = ("_known", "_retained", "_sketch")

    def __init__(self) -> None:
        self._sketch = _datasketches().update_theta_sketch(SKETCH_HASHES_LOG2)
        self._known: Any = None
        """The sketch of the other accumulators."""
        self._retained = 0

    def add(self, keys: tuple[Key, ...], item: Notification) -> int:
        for key in keys:  # Texts are hashed as UTF-8, so that distinct bytes stay distinct.
            self._sketch.update(_encode(key).decode("latin-1"))
        return self._growth()

    def combine(self, other: Self) -> int:
        self._known = _union(self._known, other._whole())
        return self._growth()

    def _growth(self) -> int:
        known = 0 if self._known is None else self._known.num_retained
        before, self._retained = self._retained, self._sketch.num_retained + known
        return int(8 * (self._retained - before))

    def _whole(self) -> Any:
        """Returns the smallest hashes of all values, independent of their order."""
        self._sketch.trim()
        own = self._sketch.compact(True)
        return own if self._known is None else _union(self._known, own)

    def packed(self) -> bytes:
        """Returns the hashes, in the format of Apache DataSketches."""
        return bytes(self._whole().serialize())

    def restore(self, packed: msgspec.Raw) -> int:
        self._known = _sketch_from(msgspec.msgpack.decode(packed, type=bytes))
        return self._growth()

    def result(self) -> int:
        estimate: float = self._whole().get_estimate()
        return round(estimate)

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Two standard deviations below and above."""
        whole = self._whole()
        if not whole.is_estimation_mode():
            return None
        return math.floor(whole.get_lower_bound(2)), math.ceil(whole.get_upper_bound(2))


def present_keys(item: Notification, name: str) -> tuple[Key, ...]:
    """Returns the values of an attribute; none if it is absent."""
    keys = item.keys_of(name)
    return () if keys[0][0] == values.ABSENT else keys


def read_key(packed: tuple[int, Any]) -> Key:
    """Returns a decoded key in the form of `key_of`. Raises EncodingError."""
    tag, at = packed
    kind = type(at)
    if tag in (values.ABSENT, values.NULL, values.NAN):
        good = kind is int and at == 0
    elif tag == values.NUMBER:
        good = (kind is int and values.INT_MIN <= at <= values.INT_MAX) or (
            kind is float and at == at
        )
        at = values.plain_number(at) if kind is float else at
    elif tag == values.TIME:
        good = kind is int and values.TIME_MIN_US <= at <= values.TIME_MAX_US
    else:
        good = (tag, kind) in ((values.BOOL, bool), (values.TEXT, bytes))
    if not good:
        raise EncodingError("a partial result", f"no value: domain {tag} with {kind.__name__}")
    return tag, at


def _add_counts(one: int, other: int) -> int:
    """Returns the sum. Raises LimitError: a hostile source may claim any count."""
    if one + other > COUNT_MAX:
        raise LimitError("COUNT_MAX", COUNT_MAX, one + other)
    return one + other


def _bytes_of(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)


@cache
def _datasketches() -> Any:
    """Returns the library of sketches, loaded with the first distinct count."""
    try:
        import datasketches
    except ImportError:
        remedy = "pip install 'contrada[query]', which counts distinct values, before Python 3.14"
        raise MissingRequirementError("datasketches", remedy) from None
    return datasketches


def _union(one: Any, other: Any) -> Any:
    union = _datasketches().theta_union(SKETCH_HASHES_LOG2)
    if one is not None:
        union.update(one)
    union.update(other)
    return union.get_result(True)


_VERSION: Final = bytes((3, 3))
"""The version of the format, and the kind of sketch."""


def _sketch_from(data: bytes) -> Any:
    """Decodes a sketch. The C++ library receives none with inconsistent sizes."""
    import numpy as np

    longs = data[0] if len(data) >= 8 and data[1:3] == _VERSION else 0
    count = int.from_bytes(data[8:12], "little") if longs > 1 else (len(data) - 8) // 8
    if (
        not 1 <= longs <= 3
        or len(data) != 8 * (longs + count)
        or count > (1 if longs == 1 else 1 << SKETCH_HASHES_LOG2)
    ):
        raise EncodingError("a partial result", "no sketch")
    try:
        sketch = _datasketches().compact_theta_sketch.deserialize(data)
        is_same = sketch.serialize() == data
    except (IndexError, RuntimeError, ValueError) as error:
        raise EncodingError("a partial result", f"no sketch: {error}") from None
    # The estimate is divided by the last one, the threshold of the hashes.
    line = bytes(8) + data[8 * longs :] + sketch.theta64.to_bytes(8, "little")
    ascending = np.frombuffer(line, "<u8")
    if not is_same or (ascending[1:] <= ascending[:-1]).any():
        raise EncodingError("a partial result", "a sketch with hashes out of order")
    return sketch

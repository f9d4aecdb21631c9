"""`CoveringIndex`: the forwarded filters that may cover a filter, or be covered by it.

Both lookups avoid testing every filter, by examples. An example of a product is one notification in
it, given as a key for each attribute that the product names. The result contains every correct
filter, and few others; the caller decides by the algebra.

- Every filter that covers f matches f's example, so one match of an `Index` finds all candidates.
- f matches the example of every filter that it covers. So each example is filed under each of its
  attributes and keys, and the lookup uses the attribute of f with the fewest examples:

      by key       price: 10 -> {1, 4}   12 -> {2}   95 -> {3}      f: price < 13 and sym = "A"
      in order     price: [10, 12, 95]                                 price: 3 at most
      by key       sym:   "A" -> {1, 3}  "B" -> {2}  "C" -> {4}        sym:   2, so test {1, 3}

No lookup finds a product without an example (an opaque operator, or beyond the limits of the
algebra). That costs traffic, never a notification.

Source: PODC 2000 §4 (immediate predecessors and successors in the poset).
"""

from bisect import bisect_left, insort
from collections.abc import Mapping, Set
from typing import Final, TypeAlias

from contrada.matching.index import Index
from contrada.model import Advertisement, Filter, Notification, Product, Value, ValueSet
from contrada.model.algebra.product import ENVELOPE_SETS
from contrada.model.algebra.relations import witness
from contrada.model.domains.line import TEXT_START
from contrada.model.domains.values import ABSENT, ABSENT_KEY, Key, is_system_name, value_of
from contrada.model.languages.decision import safe_answers
from contrada.model.languages.work_budget import Exhausted

Example: TypeAlias = Mapping[str, Key]

_KeyNumbers: TypeAlias = dict[int, None]

_KeySpan: TypeAlias = tuple[int, int]
"""A range of places among the keys of an attribute."""

_COUNTED_MAX: Final = 8
"""Keys up to which their examples are counted; the number is estimated beyond."""


_NAMELESS: Final = ""


def indexed(product: Product) -> Filter:
    """Returns the filter that an index holds for a product: unnamed attributes are ignored."""
    return product if isinstance(product, Filter) else Filter.of_sets(product.sides)


class CoveringIndex:
    """Products by number: those that cover one; subclasses find those that one covers."""

    def __init__(self) -> None:
        self._index: Index[int] = Index()
        self._files: dict[str, _ExampleFile] = {}

    def add(self, number: int, product: Product, example: Example | None) -> None:
        """Adds a product with its example. Raises LimitError, changing nothing."""
        self._index.add(number, indexed(product))

    def remove(self, number: int) -> None:
        """Removes a product."""
        self._index.remove(number)

    def covering(self, product: Product, example: Example | None) -> list[int]:
        """Returns the numbers of the products that match the example, in order. Cost: one match."""
        asked = None if example is None else _notification(product, example)
        return [] if asked is None else sorted(self._index.match(asked))

    def covered(self, product: Product) -> list[int]:
        """Returns the numbers of the products that a product may cover, in order."""
        raise NotImplementedError

    def maintain(self, units: int) -> bool:
        """Does a bounded part of the maintenance. Returns whether more is left."""
        return self._index.maintain(units)

    def _file(self, name: str, key: Key, number: int) -> None:
        file = self._files.get(name)
        if file is None:
            file = self._files[name] = _ExampleFile()
        file.add(key, number)

    def _unfile(self, name: str, key: Key, number: int) -> None:
        file = self._files[name]
        file.remove(key, number)
        if not file:
            del self._files[name]

    def validate(self) -> None:
        """Checks the invariants; AssertionError names the broken one. Cost: all products."""
        self._index.validate()
        for file in self._files.values():
            assert file, "an empty file is held"
            file.validate()


class FilterCoveringIndex(CoveringIndex):
    """An index of filters. A filter covered by f names all of f's attributes."""

    def __init__(self) -> None:
        super().__init__()
        self._examples: dict[int, Example | None] = {}

    def add(self, number: int, product: Product, example: Example | None) -> None:
        super().add(number, product, example)
        self._examples[number] = example
        for name, key in (example or {}).items():
            self._file(name, key, number)

    def remove(self, number: int) -> None:
        super().remove(number)
        for name, key in (self._examples.pop(number) or {}).items():
            self._unfile(name, key, number)

    def covered(self, product: Product) -> list[int]:
        """Returns filters that one may cover. Cost: the examples under its rarest attribute."""
        places: list[tuple[int, _ExampleFile, list[_KeySpan]]] = []
        for name, side in product.sides.items():
            file = self._files.get(name)
            if file is None:
                return []
            spans = file.within(side)
            size = file.size_of(spans)
            if not size:
                return []
            places.append((size, file, spans))
        if not places:
            return sorted(self._examples)
        places.sort(key=lambda place: place[0])
        _, file, spans = places[0]
        numbers = file.at(spans)
        for _, file, spans in places[1:]:
            numbers = numbers & file.near(spans)
        return sorted(numbers)

    def validate(self) -> None:
        super().validate()
        assert len(self._index) == len(self._examples), "a filter is not in the index"
        filed = sum(len(example) for example in self._examples.values() if example is not None)
        assert filed == sum(len(file) for file in self._files.values()), "an example is misfiled"


class OfferCoveringIndex(CoveringIndex):
    """An index of advertisements, each filed by its example of one attribute: the rarest key.

    An advertisement that covers others names their attributes, but they need not name all of its.
    """

    def __init__(self) -> None:
        super().__init__()
        self._filed: dict[int, tuple[str, Key]] = {}

    def add(self, number: int, product: Product, example: Example | None) -> None:
        super().add(number, product, example)
        if example is None:
            return
        # An attribute that every covering product names: not the envelope's. An offer of
        # attributes is covered only by such an offer, which is looked up under all names.
        places = [(name, key) for name, key in example.items() if name not in ENVELOPE_SETS]
        name, key = min(places, key=self._count_at, default=(_NAMELESS, ABSENT_KEY))
        self._filed[number] = name, key
        self._file(name, key, number)

    def _count_at(self, place: tuple[str, Key]) -> int:
        name, key = place
        return self._files[name].count_at(key) if name in self._files else 0

    def remove(self, number: int) -> None:
        super().remove(number)
        if number in self._filed:
            name, key = self._filed.pop(number)
            self._unfile(name, key, number)

    def covered(self, product: Product) -> list[int]:
        """Returns the advertisements whose example a product has. Cost: their number."""
        is_open = not isinstance(product, Advertisement)
        numbers: set[int] = set()
        for name in self._files if is_open else (_NAMELESS, *product.sides):
            if name in self._files:
                numbers |= self._files[name].inside(product.sides.get(name))
        return sorted(numbers)

    def validate(self) -> None:
        super().validate()
        assert sum(map(len, self._files.values())) == len(self._filed), "one is filed twice"
        for number, (name, key) in self._filed.items():
            assert self._files[name].count_at(key), f"{number} is misfiled"


def _notification(product: Product, example: Example) -> Notification | dict[str, Value] | None:
    """Returns the example as a notification; as a plain mapping, which is faster, if possible.

    None if the budget of the request is spent, which must not stop an update of tables halfway.
    """
    if any(map(is_system_name, example)):
        try:
            return witness(product)
        except Exhausted:
            safe_answers.add("witness")
            return None
    return {name: value_of(key) for name, key in example.items() if key[0] != ABSENT}


class _ExampleFile:
    """Examples of one attribute, by key, and the keys in order.

    Numbers are keys of dictionaries: the garbage collector skips those that hold numbers alone,
    unlike sets, and there are many.
    """

    __slots__ = ("_all", "_by_key", "_keys")

    def __init__(self) -> None:
        self._by_key: dict[Key, _KeyNumbers] = {}
        self._keys: list[Key] = []
        self._all: _KeyNumbers = {}

    def add(self, key: Key, number: int) -> None:
        numbers = self._by_key.get(key)
        if numbers is None:
            self._by_key[key] = {number: None}
            insort(self._keys, key)
        else:
            numbers[number] = None
        self._all[number] = None

    def remove(self, key: Key, number: int) -> None:
        numbers = self._by_key[key]
        del numbers[number], self._all[number]
        if not numbers:
            del self._by_key[key]
            del self._keys[bisect_left(self._keys, key)]

    def __len__(self) -> int:
        return len(self._all)

    def count_at(self, key: Key) -> int:
        """Returns the number of examples with a key."""
        return len(self._by_key.get(key, ()))

    def inside(self, side: ValueSet | None) -> Set[int]:
        """Returns the examples that a set may hold; without a set all."""
        return self._all.keys() if side is None else self.at(self.within(side))

    def within(self, side: ValueSet) -> list[_KeySpan]:
        """Returns the places of the keys that a set may hold: between its cuts, or all text."""
        keys, cuts = self._keys, side.line
        if len(cuts) == 2 and side.text is None:  # the usual case, for speed
            start = bisect_left(keys, cuts[0])
            return [(start, bisect_left(keys, cuts[1], start))]
        ends = [bisect_left(keys, cut) for cut in cuts]
        if len(ends) & 1:
            ends.append(len(keys))
        spans = list(zip(ends[::2], ends[1::2], strict=True))
        if side.text is not None:
            spans.append((bisect_left(keys, TEXT_START), len(keys)))
        return spans

    def size_of(self, spans: list[_KeySpan]) -> int:
        """Returns the approximate number of examples there."""
        count = sum([end - start for start, end in spans])
        if count <= _COUNTED_MAX:
            return sum([len(self._by_key[key]) for key in self._keys_at(spans)])
        return len(self) * count // len(self._keys)

    def at(self, spans: list[_KeySpan]) -> Set[int]:
        keys = self._keys_at(spans)
        if len(keys) == 1:
            return self._by_key[keys[0]].keys()
        return set().union(*[self._by_key[key] for key in keys])

    def near(self, spans: list[_KeySpan]) -> Set[int]:
        """Returns the examples there, or more, without building a set."""
        if len(spans) == 1 and spans[0][1] - spans[0][0] == 1:
            return self._by_key[self._keys[spans[0][0]]].keys()
        return self._all.keys()

    def _keys_at(self, spans: list[_KeySpan]) -> list[Key]:
        return [key for start, end in spans for key in self._keys[start:end]]

    def validate(self) -> None:
        assert self._keys == sorted(self._by_key), "keys are out of order"
        assert all(self._by_key.values()), "an empty key is held"
        filed = sorted(number for numbers in self._by_key.values() for number in numbers)
        assert filed == sorted(self._all), "an example is under another key, or two"

"""`IndexedForm`: conditions that filters express exactly, in an index of filters.

A condition is lifted as a predicate is. Matching then reads only the attributes that some filter
names, and looks up the filters in the index.

Source: EPFL 2503 §4.5.4 compares the tree and static filters; the index is an addition.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, cast

from contrada.matching.index import Index
from contrada.model import FilterSet
from contrada.model.domains.values import INT_MAX, INT_MIN
from contrada.typed.conditions.condition_source import OBVENT, compile_function
from contrada.typed.conditions.invocation_tree import ConditionGroup
from contrada.typed.predicates import lift
from contrada.typed.scalars import writer
from contrada.typed.shapes import Field, FieldKind, Shape, TypeOption, shape_of


class IndexedForm:
    """Groups of equal conditions, with their filters in an index.

    Filters are defined only for values of the types that the class declares: for other objects
    there is no answer.
    """

    def __init__(self, cls: type[Any]) -> None:
        self._shape = shape_of(cls)
        # Most groups have one key, which the first index returns as it is. That saves a step for
        # each match. Groups with several keys are in the second.
        self._keys: Index[Any] = Index()
        self._groups: Index[ConditionGroup] = Index()
        self._lifted: dict[ConditionGroup, _LiftedGroup] = {}
        self._names: Counter[str] = Counter()
        self._read: Callable[[Any], dict[str, Any]] | None = None

    def __len__(self) -> int:
        return len(self._lifted)

    @property
    def attributes(self) -> int:
        """The number of attributes that the filters name."""
        return len(self._names)

    def put(self, group: ConditionGroup) -> bool:
        """Adds a group. Returns False, with no effect, if filters do not express it exactly.

        A condition in part expressed is not indexed: where its filters match often, evaluating the
        rest one by one was measured at 7 to 42 times the cost of static filters.

        Cost: that of lifting the condition, some tenths of a millisecond.
        """
        lifted = lift(self._shape, group.condition.predicate())
        filters = FilterSet(lifted.filters.filters)
        if not lifted.is_exact or not all(each.sets for each in filters.filters):
            return False
        held = self._lifted[group] = _LiftedGroup(filters)
        self._place(group)
        self._names.update(held.names)
        self._read = None
        return True

    def change(self, group: ConditionGroup) -> None:
        """Notes that the keys of a group have changed; no effect if it is not here."""
        if group in self._lifted:
            self._unplace(group)
            self._place(group)

    def drop(self, group: ConditionGroup) -> None:
        """Removes a group; no effect if it is not here."""
        if group in self._lifted:
            self._unplace(group)
            self._names -= Counter(self._lifted.pop(group).names)
            self._read = None

    def _place(self, group: ConditionGroup) -> None:
        held = self._lifted[group]
        held.placed = group.keys[0] if len(group.keys) == 1 else group
        (self._groups if held.placed is group else self._keys).add(held.placed, held.filters)

    def _unplace(self, group: ConditionGroup) -> None:
        held = self._lifted[group]
        (self._groups if held.placed is group else self._keys).remove(held.placed)

    def renew(self) -> None:
        """Chooses the access predicates anew, now that all filters are known."""
        self._keys.renew()
        self._groups.renew()

    def matching(self, obvent: Any) -> list[Any] | None:
        """Returns the keys of the groups that an obvent matches; None if filters cannot decide."""
        read = self._read
        if read is None:
            read = self._read = attribute_reader(self._shape, self._names)
        try:
            attributes = read(obvent)
            found = self._keys.match(attributes) if len(self._keys) else []
            groups = self._groups.match(attributes) if len(self._groups) else ()
        except Exception:  # noqa: BLE001 - the object is not as its class declares it
            return None
        for group in groups:
            found += group.keys
        return found


@dataclass(slots=True)
class _LiftedGroup:
    """The filters of a group, and its entry in an index: its only key, or the group."""

    filters: FilterSet
    placed: Any = None

    @property
    def names(self) -> set[str]:
        return {name for each in self.filters.filters for name in each.sets}


class UnusualError(Exception):
    """A value that is not of its field's type."""


def attribute_reader(shape: Shape, names: Mapping[str, Any]) -> Callable[[Any], dict[str, Any]]:
    """Returns a function that reads the named attributes of an object, as in its notification.

    The function raises for a value that is not exactly of a declared type of its field, and for an
    object of another class.
    """
    source = _ReaderSource(names)
    body = list(ast.parse("found = {}").body)
    body += source.fields(shape, OBVENT, "")
    body += ast.parse("return found").body
    return cast(Callable[[Any], dict[str, Any]], compile_function("attributes", body, source.names))


class _ReaderSource:
    """The statements that read the named attributes."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._wanted = names
        self._number = 0
        self.names: dict[str, Any] = {"Unusual": UnusualError}

    def fields(self, shape: Shape, of: str, prefix: str) -> Iterator[ast.stmt]:
        self._number += 1
        cls = f"cls{self._number}"
        self.names[cls] = shape.cls
        yield from ast.parse(f"if not isinstance({of}, {cls}): raise Unusual").body
        for declared in shape.fields:
            path = prefix + declared.name
            inside = any(name.startswith(f"{path}.") for name in self._wanted)
            if not declared.is_flat or (path not in self._wanted and not inside):
                continue
            self._number += 1
            variable = f"v{self._number}"
            value = ast.Attribute(ast.Name(of, ast.Load()), declared.name, ast.Load())
            yield ast.Assign([ast.Name(variable, ast.Store())], value)
            objects = [it for it in declared.alternatives if it.kind is FieldKind.OBJECT]
            if objects:
                yield from self._object(objects[0].type, variable, path)
            else:
                yield from self._scalar(declared, variable, path)

    def _object(self, cls: type[Any], variable: str, path: str) -> Iterator[ast.stmt]:
        inner = list(self.fields(shape_of(cls), variable, f"{path}."))
        none = ast.parse(f"found[{path!r}] = None").body
        is_none = ast.parse(f"{variable} is None", mode="eval").body
        yield ast.If(is_none, none, inner)

    def _scalar(self, declared: Field, variable: str, path: str) -> Iterator[ast.stmt]:
        kinds = [each.kind for each in declared.alternatives]
        name = f"write{self._number}"
        self.names[name] = _value_writer(declared.alternatives)
        plain = _PLAIN.get(kinds[0]) if len(kinds) == 1 else None
        unless = "" if plain is None else f"if type({variable}) is not {plain}: "
        yield from ast.parse(f"{unless}{variable} = {name}({variable})").body
        yield from ast.parse(f"found[{path!r}] = {variable}").body


_PLAIN: Final = {FieldKind.FLOAT: "float", FieldKind.TEXT: "str", FieldKind.BOOL: "bool"}
"""Kinds of which all values are the same in an object and in its notification."""


def _value_writer(alternatives: tuple[TypeOption, ...]) -> Callable[[Any], Any]:
    """Returns a function that turns a value into that of an attribute, by its exact type."""
    writers = {each.type: writer(each) for each in alternatives}
    if datetime in writers:
        writers[datetime] = _time

    def write(value: Any) -> Any:
        kind = type(value)
        write = writers.get(kind)
        if write is None:
            raise UnusualError
        if kind is int and not INT_MIN <= value <= INT_MAX:
            raise UnusualError
        return write(value)

    return write


def _time(value: datetime) -> datetime:
    """Refuses times with a named zone: Python compares them by more than their instant."""
    if type(value.tzinfo) is not timezone:
        raise UnusualError
    return value

"""Indexed filters: what of conditions the algebra can say, found by an index of filters.

A condition is lifted as a predicate is; of an obvent only the attributes that some filter asks for
are then looked at. What filters leave open is asked of the condition itself, where they match.

Source: EPFL 2503 §4.5.4 measures the tree and static filters; that an index beats both is ours.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, cast

from contrada.matching import Index
from contrada.model import Filter, FilterSet
from contrada.model.domains.values import INT_MAX, INT_MIN, is_system_name
from contrada.typed.conditions.condition_groups import ConditionGroup
from contrada.typed.conditions.condition_source import OBVENT, compiled
from contrada.typed.predicates import lift
from contrada.typed.scalars import writer
from contrada.typed.shapes import Field, FieldKind, Shape, TypeOption, shape_of


class IndexedForm:
    """Groups of equal conditions whose filters stand in an index.

    Of an object that has a value of another type than its class declares, filters say nothing.
    """

    def __init__(self, cls: type[Any], *, is_compiled: bool) -> None:
        self._shape = shape_of(cls)
        # Keys come out of the first as they are; of what several gave, or is decided beside its
        # filters, the group does of the second.
        self._keys: Index[Any] = Index(compiled=is_compiled)
        self._groups: Index[ConditionGroup] = Index(compiled=is_compiled)
        self._lifted: dict[ConditionGroup, _LiftedGroup] = {}
        self._residues: dict[ConditionGroup, Callable[[Any], bool]] = {}
        self._names: Counter[str] = Counter()
        self._attributes: Callable[[Any], dict[str, Any]] | None = None
        self.comparisons = 0.0

    def __len__(self) -> int:
        return len(self._lifted)

    def put(self, group: ConditionGroup) -> bool:
        """Adds a group. Returns False, with nothing done, where its condition lifts to no filters.

        Cost: that of lifting the condition, some tenths of a millisecond.
        """
        lifted = lift(self._shape, group.condition.predicate())
        filters = FilterSet([_of_attributes(each) for each in lifted.filters.filters])
        if any(not each.sets for each in filters.filters):
            return False
        self._lifted[group] = _LiftedGroup(filters, lifted.is_exact)
        if not lifted.is_exact:
            self._residues[group] = group.condition.conforms
        self._place(group)
        self._names.update(self._lifted[group].names)
        self._attributes = None
        self.comparisons += group.comparisons
        return True

    def change(self, group: ConditionGroup) -> None:
        """The keys of a group have changed, if it is here."""
        if group in self._lifted:
            self._unplace(group)
            self._place(group)

    def drop(self, group: ConditionGroup) -> None:
        """Takes a group away, if it is here."""
        if group in self._lifted:
            self._unplace(group)
            self._residues.pop(group, None)
            self._names -= Counter(self._lifted.pop(group).names)
            self._attributes = None
            self.comparisons -= group.comparisons

    def _place(self, group: ConditionGroup) -> None:
        held = self._lifted[group]
        held.placed = group.keys[0] if held.is_exact and len(group.keys) == 1 else group
        (self._groups if held.placed is group else self._keys).add(held.placed, held.filters)

    def _unplace(self, group: ConditionGroup) -> None:
        held = self._lifted[group]
        (self._groups if held.placed is group else self._keys).remove(held.placed)

    def candidates(self, seen: Iterable[Any]) -> float | None:
        """How many filters are looked at for one of these obvents; None where there is none."""
        found = []
        for each in seen:
            if self.matching(each) is not None:
                held = (index for index in (self._keys, self._groups) if len(index))
                found.append(sum(index.statistics().candidates for index in held))
        return sum(found) / len(found) if found else None

    def renew(self) -> None:
        """Chooses where filters are found anew, now that all are known."""
        self._keys.renew()
        self._groups.renew()

    def matching(self, obvent: Any) -> list[Any] | None:
        """The keys of the groups that an obvent matches; None where that is not told."""
        attributes = self._attributes
        if attributes is None:
            attributes = self._attributes = attributes_of(self._shape, self._names)
        try:
            held = attributes(obvent)
            found = self._keys.match(held) if len(self._keys) else []
            groups = self._groups.match(held) if len(self._groups) else ()
        except Exception:  # noqa: BLE001 - not as its class declares; static filters then tell
            return None
        residues = self._residues
        for group in groups:
            if group not in residues or residues[group](obvent):
                found += group.keys
        return found


@dataclass(slots=True)
class _LiftedGroup:
    """What a group was lifted to, and what stands for it in an index."""

    filters: FilterSet
    is_exact: bool
    placed: Any = None

    @property
    def names(self) -> set[str]:
        """The attributes that its filters ask for."""
        return {name for each in self.filters.filters for name in each.sets}


def _of_attributes(of: Filter) -> Filter:
    """The filter without marks: objects have none, and a condition on a mark is never exact."""
    return Filter.of_sets({name: it for name, it in of.sets.items() if not is_system_name(name)})


class UnusualError(Exception):
    """A value that its field's type does not have."""


def attributes_of(shape: Shape, names: Mapping[str, Any]) -> Callable[[Any], dict[str, Any]]:
    """A function that gives the named attributes of an object, as its notification has them.

    The function raises where a value is not exactly of a type that its field declares, or the
    object not of its class.
    """
    written = _AttributeReading(names)
    body = list(ast.parse("found = {}").body)
    body += written.fields(shape, ast.Name(OBVENT, ast.Load()), "")
    body += ast.parse("return found").body
    return cast(Callable[[Any], dict[str, Any]], compiled("attributes", body, written.held))


class _AttributeReading:
    """The statements that read the attributes that are asked for."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._asked = names
        self._number = 0
        self.held: dict[str, Any] = {}

    def fields(self, shape: Shape, of: ast.expr, prefix: str) -> Iterator[ast.stmt]:
        for declared in shape.fields:
            path = prefix + declared.name
            inside = any(name.startswith(f"{path}.") for name in self._asked)
            if not declared.is_flat or (path not in self._asked and not inside):
                continue
            self._number += 1
            variable = f"v{self._number}"
            yield _assigned(variable, ast.Attribute(of, declared.name, ast.Load()))
            objects = [it for it in declared.alternatives if it.kind is FieldKind.OBJECT]
            if objects:
                yield from self._object(objects[0].type, variable, path)
            else:
                yield from self._scalar(declared, variable, path)

    def _object(self, cls: type[Any], variable: str, path: str) -> Iterator[ast.stmt]:
        inner = list(self.fields(shape_of(cls), ast.Name(variable, ast.Load()), f"{path}."))
        none = ast.parse(f"found[{path!r}] = None").body
        yield ast.If(_test(f"{variable} is None"), none, inner or [ast.Pass()])

    def _scalar(self, declared: Field, variable: str, path: str) -> Iterator[ast.stmt]:
        kinds = [each.kind for each in declared.alternatives]
        name = f"write{self._number}"
        self.held[name] = _writing(declared.alternatives)
        plain = _PLAIN.get(kinds[0]) if len(kinds) == 1 else None
        if plain is None:
            yield from ast.parse(f"{variable} = {name}({variable})").body
        else:
            yield from ast.parse(
                f"if type({variable}) is not {plain}: {variable} = {name}({variable})"
            ).body
        yield from ast.parse(f"found[{path!r}] = {variable}").body


_PLAIN: Final = {FieldKind.FLOAT: "float", FieldKind.TEXT: "str", FieldKind.BOOL: "bool"}
"""Kinds all values of whose type stand in a notification as they are."""

_TYPES: Final[dict[FieldKind, type]] = {
    FieldKind.BOOL: bool,
    FieldKind.INT: int,
    FieldKind.FLOAT: float,
    FieldKind.TEXT: str,
    FieldKind.BYTES: bytes,
}


def _writing(alternatives: tuple[TypeOption, ...]) -> Callable[[Any], Any]:
    """What turns a value into that of an attribute, by its very type."""
    writers = {_TYPES.get(each.kind, each.type): writer(each) for each in alternatives}
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
    """A time by the clock of a zone may be told from others by more than when it is."""
    if type(value.tzinfo) is not timezone:
        raise UnusualError
    return value


def _assigned(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _test(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body

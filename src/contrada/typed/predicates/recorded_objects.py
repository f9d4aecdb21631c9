"""`ObjectValue`: an object that represents an obvent, or one nested in it, in the runs of a
predicate.

Reading a field splits the run by the possible kinds of its value. None, True and False are real
values then; other kinds are recording values. The attribute of a field is the one that the codec
writes: the field's own name, else its aliases, else its default; a nested object's fields have
paths. The values of a field of doubles are doubles.

A method or property runs like the predicate if no subtype can override it.

Source: EPFL 2503 §3.5.2 (attributes and methods), §3.5.3 (nested invocations).
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import FunctionType, MethodType
from typing import Any, Final

from contrada.model import ValueSet, mark_name
from contrada.model.algebra.value_set import ABSENT, EVERYTHING, NOTHING, PRESENT, of_keys, union
from contrada.model.domains.values import BOOL
from contrada.typed.predicates import captured_constants, value_kinds
from contrada.typed.predicates.path_explorer import Path, Sets, Stop
from contrada.typed.predicates.recorded_values import NO_DEFAULT, Opaque, Recorded, ScalarValue
from contrada.typed.scalars import ALL_TEXT, ALL_TIMES, DOUBLES, INTEGERS, NULL_POINT
from contrada.typed.shapes import Default, Field, FieldKind, Shape, TypeOption, shape_of

OBJECTS_WITHIN_MAX: Final = 8
"""Depth of nested objects read. Beyond it: tests of deeper fields stay at the subscriber."""

TRUE_POINT: Final = of_keys(((BOOL, True),))
_BOOLS: Final = ((True, TRUE_POINT), (False, of_keys(((BOOL, False),))))

Choice = tuple[Any, Sets]
"""A possible value of a field, and the sets of attributes for which it has this value."""

Name = Callable[[type], str | None]
"""The name of an obvent class; None for another class."""


@dataclass
class PredicateRun:
    """The settings that all runs of one predicate share.

    `real_enums` are the enumerations that `is` compares by their members. `copy_of` returns the
    copy of a function that a run may call.
    """

    path: Path
    type_name: Name
    copy_of: Callable[[FunctionType], FunctionType]
    tests_identity: bool = False
    real_enums: frozenset[type] = frozenset()
    shapes: dict[type, Shape] = field(default_factory=dict)

    def shape(self, cls: type) -> Shape:
        """Returns the shape of a class, read once."""
        found = self.shapes.get(cls)
        if found is None:
            found = self.shapes[cls] = shape_of(cls)
        return found

    def opaque(self, name: str, reason: str) -> Any:
        """Returns an unreadable value; in code with `is`, which is not recorded, an end."""
        return Stop(f"{name}: {reason}") if self.tests_identity else Opaque(self.path, name, reason)


class ObjectValue(Recorded):
    """An object with fields that are read."""

    __slots__ = ("_contrada_prefix", "_contrada_run", "_contrada_shape")

    def __init__(self, run: PredicateRun, shape: Shape, prefix: str = "") -> None:
        super().__init__(run.path, prefix[:-1])
        self._contrada_run = run
        self._contrada_shape = shape
        self._contrada_prefix = prefix

    def __getattr__(self, name: str) -> Any:
        path, whole = self._contrada_path, self._contrada_prefix + name
        values = path.values
        if whole in values:
            return values[whole]
        declared = self._contrada_shape.by_name.get(name)
        if declared is None:
            return self._contrada_member(name)
        option = path.replay(whole)
        if option is None:
            choices = _choices(self, declared)
            option = path.fork(whole, choices)
        value = values[whole] = path.answer(option)
        return value

    def _contrada_member(self, name: str) -> Any:
        """Returns a method or property, run like the predicate."""
        cls = self._contrada_shape.cls
        member = inspect.getattr_static(cls, name, None)
        is_property = isinstance(member, property)
        function = member.fget if isinstance(member, property) else member
        if not isinstance(function, FunctionType):
            self._contrada_refuse(f"{cls.__name__}.{name} is no field")
        is_final = getattr(function, "__final__", False) or cls.__dict__.get("__final__", False)
        if not is_final:
            called = f"{cls.__name__}.{name}"
            remedy = "mark it, or the class, @typing.final"
            self._contrada_refuse(f"a subtype may override {called}; {remedy}")
        method = MethodType(self._contrada_run.copy_of(function), self)
        return method() if is_property else method

    def _contrada_is_instance(self, classes: tuple[type, ...]) -> bool:
        cls = self._contrada_shape.cls
        if issubclass(cls, classes):
            return True
        if self._contrada_prefix:
            self._contrada_refuse("of which subtype a nested object is, is not lifted")
        return any(map(self._contrada_is_marked, classes))

    def _contrada_is_marked(self, cls: type) -> bool:
        """Whether the object has the mark of an obvent class.

        Its objects have the mark; a notification may also have it without being such an object.
        """
        given = self._contrada_run.type_name(cls)
        if given is None:
            self._contrada_refuse(f"{cls.__name__} is no obvent class")
        path, name = self._contrada_path, mark_name(given)
        option = path.replay(name)
        if option is None:
            answers = [(True, TRUE_POINT), (False, EVERYTHING)]
            weakness = "an object of another type may have the mark"
            option = path.test(name, answers, weakness=weakness)
        answer: bool = path.answer(option)
        return answer


class EnvelopeValue(Recorded):
    """The envelope of a notification; filters know only its texts that are always present."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        path, attribute = self._contrada_path, f"@{name}"
        if attribute in path.values:
            return path.values[attribute]
        if name not in ("id", "publisher"):
            self._contrada_refuse(f"{name} of the envelope is not lifted")
        option = path.replay(attribute)
        if option is None:
            text = value_kinds.TextValue(path, attribute, str)
            option = path.fork(attribute, [(text, {attribute: ALL_TEXT})])
        value = path.values[attribute] = path.answer(option)
        return value


def _choices(of: ObjectValue, declared: Field) -> list[Choice]:
    run, whole = of._contrada_run, of._contrada_prefix + declared.name
    if len(declared.alternatives) == 1 and declared.is_required and not declared.aliases:
        simple = _SCALARS.get(declared.alternatives[0].kind)
        if simple is not None:  # The usual case, for speed.
            _, make, values = simple
            return [(make(run.path, whole, NO_DEFAULT), {whole: values})]
    kinds = {each.kind for each in declared.alternatives}
    if not declared.is_flat or not kinds <= _KNOWN:
        return [(run.opaque(whole, "it is in the body"), {})]
    if FieldKind.OBJECT in kinds and declared.aliases:
        return [(run.opaque(whole, "it is an object, and has aliases"), {})]
    if FieldKind.OBJECT in kinds:
        return list(_object_choices(of, declared, whole))
    names = [of._contrada_prefix + name for name in (declared.name, *declared.aliases)]
    default = declared.default
    if default is not Default.NONE and _may_change_defaults(of._contrada_shape.cls):
        default = Default.MADE
    choices: list[Choice] = []
    for place, name in enumerate(names):
        before: Sets = dict.fromkeys(names[:place], ABSENT)
        beside = default if len(names) == 1 else Default.NONE
        found = _scalar_choices(run, declared, name, beside)
        choices += [(value, {**before, name: values}) for value, values in found]
    # Absence is a choice of its own unless it was added to a value that equals the default.
    is_covered = len(names) == 1 and any(ABSENT.issubset(sets[names[0]]) for _, sets in choices)
    if default is not Default.NONE and not is_covered:
        choices.append((_default(run, whole, default), dict.fromkeys(names, ABSENT)))
    return choices


def _scalar_choices(
    run: PredicateRun, declared: Field, name: str, default: Any
) -> Iterator[tuple[Any, ValueSet]]:
    """Yields the values of a field, with those of one attribute; a default among its kind."""
    kinds = {each.kind for each in declared.alternatives}
    if {FieldKind.INT, FieldKind.FLOAT} <= kinds:
        kinds -= {FieldKind.INT, FieldKind.FLOAT}
        yield value_kinds.NumberValue(run.path, name, value_kinds.IntOrFloat), DOUBLES
    if {FieldKind.TEXT, FieldKind.BYTES} <= kinds:
        kinds -= {FieldKind.TEXT, FieldKind.BYTES}
        reason = "str and bytes of one value are the same attribute"
        yield run.opaque(name, reason), ALL_TEXT
    for each in declared.alternatives:
        kind = each.kind
        if kind not in kinds:
            continue
        if kind is FieldKind.NONE:
            yield None, NULL_POINT | (ABSENT if default is None else NOTHING)
        elif kind is FieldKind.BOOL:
            for answer, point in _BOOLS:
                yield answer, point | (ABSENT if default is answer else NOTHING)
        elif kind is FieldKind.ENUM:
            yield from _enum_choices(run, each, name, default)
        else:
            cls, make, values = _SCALARS[kind]
            if type(default) is cls or (kind is FieldKind.FLOAT and type(default) is int):
                yield make(run.path, name, default), values | ABSENT
            else:
                yield make(run.path, name, NO_DEFAULT), values


def _enum_choices(
    run: PredicateRun, alternative: TypeOption, name: str, default: Any
) -> Iterator[tuple[Any, ValueSet]]:
    cls = alternative.type
    points = value_kinds.points_of(cls)
    whole = union(points.values())
    if not captured_constants.is_plain_enum(cls):
        yield run.opaque(name, f"{cls.__name__} has code of its own"), whole
    elif cls in run.real_enums and len(points) <= value_kinds.ENUM_FORKS_MAX:
        for member, point in points.items():
            yield member, point | (ABSENT if member is default else NOTHING)
    elif cls in run.real_enums:
        yield Stop(f"{name}: `is` with more than {value_kinds.ENUM_FORKS_MAX} members"), whole
    elif type(default) is cls:
        yield value_kinds.MemberValue(run.path, name, cls, default), whole | ABSENT
    else:
        yield value_kinds.MemberValue(run.path, name, cls), whole


def _default(run: PredicateRun, name: str, default: Any) -> Any:
    if default is Default.MADE:
        return run.opaque(name, "its default is made anew")
    try:
        return captured_constants.to_run_constant(captured_constants.freeze(default))
    except captured_constants.NotConstantError:
        return run.opaque(name, f"its default is {type(default).__name__}")


def _object_choices(of: ObjectValue, declared: Field, whole: str) -> Iterator[Choice]:
    """Yields the alternatives of a field with objects.

    None and scalars are values of the attribute of the path; an object has none there. A default
    represents a wholly absent object, which is one without a field that every such object has.
    """
    run = of._contrada_run
    others = [each for each in declared.alternatives if each.kind is not FieldKind.OBJECT]
    there = NOTHING
    for each in others:
        flat = replace(declared, alternatives=(each,), default=Default.NONE)
        for value, values in _scalar_choices(run, flat, whole, Default.NONE):
            there |= values
            yield value, {whole: values}
    rest: Sets = {whole: EVERYTHING - there} if others else {}
    if whole.count(".") >= OBJECTS_WITHIN_MAX:
        reason = f"deeper than OBJECTS_WITHIN_MAX = {OBJECTS_WITHIN_MAX} objects"
        yield run.opaque(whole, reason), rest
        return
    inner = next(each for each in declared.alternatives if each.kind is FieldKind.OBJECT)
    shape = run.shape(inner.type)
    made = ObjectValue(run, shape, f"{whole}.")
    if declared.is_required:
        yield made, rest
        return
    sure = next((each.name for each in shape.fields if _is_sure(each)), None)
    if sure is None:
        yield run.opaque(whole, "absent, it has its default"), rest
        return
    yield made, {**rest, f"{whole}.{sure}": PRESENT}
    default = declared.default
    if _may_change_defaults(of._contrada_shape.cls):
        default = Default.MADE
    yield _default(run, whole, default), {**rest, f"{whole}.{sure}": ABSENT}


def _is_sure(of: Field) -> bool:
    kinds = {each.kind for each in of.alternatives}
    plain = of.is_flat and kinds <= _KNOWN - {FieldKind.OBJECT, FieldKind.DECIMAL}
    return plain and of.is_required and not of.aliases


def _may_change_defaults(cls: Any) -> bool:
    """Whether code that runs in the constructor may replace a field's default."""
    if any(hasattr(cls, name) for name in ("__post_init__", "__attrs_post_init__")):
        return True
    if any(getattr(each, "converter", None) for each in getattr(cls, "__attrs_attrs__", ())):
        return True
    decorators = getattr(cls, "__pydantic_decorators__", None)
    if decorators is None:
        return False
    names = ("validators", "field_validators", "root_validators", "model_validators")
    config = cls.model_config.get("validate_default", False)
    return bool(config or cls.__pydantic_post_init__) or any(
        getattr(decorators, name) for name in names
    )


Make = Callable[[Path, str, Any], ScalarValue]


def _of_class(make: Callable[..., ScalarValue], cls: type) -> Make:
    return lambda path, name, default: make(path, name, cls, default)


_SCALARS: Final[dict[FieldKind, tuple[type, Make, ValueSet]]] = {
    FieldKind.INT: (int, _of_class(value_kinds.NumberValue, int), INTEGERS),
    FieldKind.FLOAT: (float, _of_class(value_kinds.NumberValue, float), DOUBLES),
    FieldKind.TEXT: (str, _of_class(value_kinds.TextValue, str), ALL_TEXT),
    FieldKind.BYTES: (bytes, _of_class(value_kinds.TextValue, bytes), ALL_TEXT),
    FieldKind.TIME: (datetime, value_kinds.TimeValue, ALL_TIMES),
    FieldKind.DATE: (date, value_kinds.DateValue, ALL_TEXT),
    FieldKind.DURATION: (timedelta, value_kinds.DurationValue, INTEGERS),
    FieldKind.DECIMAL: (Decimal, value_kinds.DecimalValue, DOUBLES),
}
_OTHERS: Final = {FieldKind.NONE, FieldKind.BOOL, FieldKind.ENUM, FieldKind.OBJECT}
_KNOWN: Final = frozenset(_SCALARS) | _OTHERS

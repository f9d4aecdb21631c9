"""`Accessor`: the path from an obvent to the value that a condition compares.

    Invoke("get_market.get_name")  # methods, one after the other
    Invoke(Access("market"), "price_in", ("EUR",))  # a method of a field's value, with arguments

An argument may be an accessor of the same obvent. Methods are given by name, or as functions; a
function requires an object of the class that has it, and a subclass may override it. An accessor is
one stage and its operand, the accessor before it: those with the same beginning share it.

Source: EPFL 2503 §3.5.1, §3.5.3, §4.5.1; figures 4.9 to 4.11.
"""

import ast
import keyword
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from contrada.errors import InvalidObventError
from contrada.typed.conditions.condition_source import ConditionSource, obvent_name
from contrada.typed.conditions.type_checks import (
    StandInArgument,
    call_type,
    field_type,
    has_method,
    text_of,
    unite,
)

STAGES_MAX: Final = 32
"""Stages of an accessor, arguments included. Beyond it: InvalidObventError."""

Share: TypeAlias = Callable[["Accessor"], "Accessor"]
Method: TypeAlias = str | Callable[..., Any]


class NoDefaultValue:
    """The absence of a default."""


NO_VALUE: Final = NoDefaultValue()


class Accessor(ABC):
    """Reads a value of an obvent.

    An accessor of your own defines `eval`. It is neither checked, shared nor lifted.

    Source: EPFL 2503 §4.5.1, figure 4.9.
    """

    depth: int = 0

    @abstractmethod
    def eval(self, obvent: Any) -> Any:
        """Returns its value for an object. Raises the errors of the object's methods."""

    def access(self, names: str, *, default: Any = NO_VALUE) -> "Access":
        """Returns an accessor of fields of its value."""
        return Access(self, names, default=default)

    def invoke(
        self,
        methods: Method | Sequence[Method],
        *arguments: tuple[Any, ...],
        default: Any = NO_VALUE,
    ) -> "Invoke":
        """Returns an accessor that calls methods of its value."""
        return Invoke(self, methods, *arguments, default=default)

    @property
    def key(self) -> Hashable:
        """A key that is equal for accessors with the same value for every object."""
        return ("accessor", id(self))

    def operands(self) -> tuple["Accessor", ...]:
        """The accessors that it reads."""
        return ()

    def with_operands(self, share: Share) -> "Accessor":
        """Returns a copy with operands replaced by `share`."""
        return self

    def check(self, cls: type[Any]) -> Any:
        """Returns the declared type of its value for objects of a class; Any if there is none.

        Raises InvalidObventError for a field or method that its type does not have, and for
        arguments that the method does not take.
        """
        return Any

    def expression(self, source: ConditionSource) -> ast.expr:
        """Returns the accessor as an expression of Python."""
        return source.call(self.eval, obvent_name())


class Whole(Accessor):
    """The obvent itself: an accessor without stages."""

    @property
    def key(self) -> Hashable:
        return "obvent"

    def eval(self, obvent: Any) -> Any:
        return obvent

    def check(self, cls: type[Any]) -> Any:
        return cls

    def expression(self, source: ConditionSource) -> ast.expr:
        return obvent_name()

    def __str__(self) -> str:
        return "obvent"


WHOLE: Final = Whole()


class Stage(Accessor):
    """An access or invocation of its operand `of`; `default` if it, or a stage before, raises."""

    def __init__(self, of: Accessor, name: str, default: Any) -> None:
        self.of = of
        self.name = name
        self.default = default

    def __init_subclass__(cls, **options: Any) -> None:
        """Raises TypeError for a class of your own: no form of evaluation would know it."""
        super().__init_subclass__(**options)
        if Stage not in cls.__bases__:
            raise TypeError(f"{cls.__qualname__}: an accessor of your own derives from Accessor")

    def validate(self, cls: type[Any] | None) -> None:
        """Counts its stages, and checks it against a class if one is given."""
        self.depth = 1 + max(each.depth for each in self.operands())
        if self.depth > STAGES_MAX:
            reason = f"an accessor of more than STAGES_MAX = {STAGES_MAX} stages"
            raise InvalidObventError(class_name(cls), reason)
        if cls is not None:
            self.check(cls)

    def eval(self, obvent: Any) -> Any:
        """Returns its value, or the default. Raises the stage's error if it has none."""
        if self.default is NO_VALUE:
            return self.apply(self.of.eval(obvent), obvent)
        try:
            return self.apply(self.of.eval(obvent), obvent)
        except Exception:  # noqa: BLE001 - the obvent's own code; defaults are for that
            return self.default

    def apply(self, found: Any, obvent: Any) -> Any:
        """Returns the value of this stage alone, of the operand's value."""
        raise NotImplementedError

    def or_default(self, declared: Any) -> Any:
        """Returns a declared type united with that of its default."""
        return declared if self.default is NO_VALUE else unite([declared, type(self.default)])

    def operands(self) -> tuple[Accessor, ...]:
        return (self.of,)

    def expression(self, source: ConditionSource) -> ast.expr:
        """An attribute or a call; if it has a default, a call of `eval`."""
        if self.default is not NO_VALUE:
            return super().expression(source)
        return self.plain_expression(source)

    def plain_expression(self, source: ConditionSource) -> ast.expr:
        """Returns the stage as an expression, without its default."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def _after(self, text: str) -> str:
        before = "" if self.of is WHOLE else f"{self.of}."
        if self.default is NO_VALUE:
            return f"{before}{text}"
        return f"({before}{text} else {self.default!r})"


class Access(Stage):
    """Fields of the obvent or of an accessor's value, by names joined by dots.

    `cls` is a class to check against at once; a condition is checked against the subscribed class
    in any case. Raises InvalidObventError.

    Source: EPFL 2503 §4.5.1, figure 4.11.
    """

    def __init__(
        self,
        nested: Accessor | str,
        names: str | None = None,
        *,
        default: Any = NO_VALUE,
        cls: type[Any] | None = None,
    ) -> None:
        if isinstance(nested, str):
            if names is not None:
                reason = f"fields {nested!r}, {names!r}: join them by dots"
                raise InvalidObventError(class_name(cls), reason)
            names, nested = nested, WHOLE
        *before, last = _checked_names(names, cls)
        for name in before:
            nested = Access(nested, name)
        super().__init__(nested, last, default)
        self.validate(cls)

    def apply(self, found: Any, obvent: Any) -> Any:
        return getattr(found, self.name)

    @property
    def key(self) -> Hashable:
        return ("access", self.of.key, self.name, _default_key(self.default))

    def with_operands(self, share: Share) -> Accessor:
        return Access(share(self.of), self.name, default=self.default)

    def check(self, cls: type[Any]) -> Any:
        return self.or_default(field_type(self.of.check(cls), self.name, str(self)))

    def plain_expression(self, source: ConditionSource) -> ast.expr:
        return ast.Attribute(source.value(self.of), self.name, ast.Load())

    def __str__(self) -> str:
        return self._after(self.name)


class Invoke(Stage):
    """Methods, by names joined by dots, or as functions: `[Quote.at, OfferBoard.name]`.

    Their arguments follow: a tuple for each method, or nothing if none takes any. A nested accessor
    may be the first argument; `cls` as in `Access`. Raises InvalidObventError.

    Source: EPFL 2503 §4.5.1, figure 4.10.
    """

    def __init__(
        self,
        nested: Accessor | Method | Sequence[Method],
        *given: Any,
        default: Any = NO_VALUE,
        cls: type[Any] | None = None,
    ) -> None:
        methods: Any = nested
        if isinstance(nested, Accessor):
            if not given:
                raise InvalidObventError(class_name(cls), f"no method of {nested} is named")
            methods, *arguments = given
        else:
            nested, arguments = WHOLE, list(given)
        *before, last = _checked_methods(methods, cls)
        arguments = arguments or [()] * (len(before) + 1)
        if len(arguments) != len(before) + 1 or not all(type(it) is tuple for it in arguments):
            expected = f"expected a tuple of arguments for each of {len(before) + 1} methods"
            raise InvalidObventError(class_name(cls), f"{methods!r} with {arguments!r}: {expected}")
        for method, each in zip(before, arguments[:-1], strict=True):
            nested = Invoke(nested, [method], each)
        self.function = None if isinstance(last, str) else last
        self.arguments: tuple[Any, ...] = arguments[-1]
        self._of_accessors = any(isinstance(each, Accessor) for each in self.arguments)
        super().__init__(nested, last if isinstance(last, str) else last.__name__, default)
        self.validate(cls)

    def apply(self, found: Any, obvent: Any) -> Any:
        """Calls the method. Raises TypeError for a function of another class."""
        if self.function is not None:
            _require_method(self.function, found)
        if not self._of_accessors:
            return getattr(found, self.name)(*self.arguments)
        arguments = [it.eval(obvent) if isinstance(it, Accessor) else it for it in self.arguments]
        return getattr(found, self.name)(*arguments)

    @property
    def key(self) -> Hashable:
        arguments = tuple(
            each.key if isinstance(each, Accessor) else constant_key(each)
            for each in self.arguments
        )
        function = None if self.function is None else id(self.function)
        return ("invoke", self.of.key, self.name, function, arguments, _default_key(self.default))

    def operands(self) -> tuple[Accessor, ...]:
        return (self.of, *(each for each in self.arguments if isinstance(each, Accessor)))

    def with_operands(self, share: Share) -> Accessor:
        arguments = tuple(
            share(each) if isinstance(each, Accessor) else each for each in self.arguments
        )
        method = self.name if self.function is None else self.function
        return Invoke(share(self.of), [method], arguments, default=self.default)

    def check(self, cls: type[Any]) -> Any:
        found = self.of.check(cls)
        arguments = [
            StandInArgument(it.check(cls)) if isinstance(it, Accessor) else it
            for it in self.arguments
        ]
        return self.or_default(call_type(found, self.name, self.function, arguments, str(self)))

    def plain_expression(self, source: ConditionSource) -> ast.expr:
        arguments = [operand(source, each) for each in self.arguments]
        found = source.value(self.of, is_read=self.function is None)
        if self.function is not None:
            found = source.call(partial(_require_method, self.function), found)
        return ast.Call(ast.Attribute(found, self.name, ast.Load()), list(arguments), [])

    def __str__(self) -> str:
        return self._after(f"{self.name}({', '.join(map(text_of, self.arguments))})")


def operand(source: ConditionSource, of: Any) -> ast.expr:
    """Returns an argument or an expected value: that of an accessor, unread, or a constant."""
    return source.value(of, is_read=False) if isinstance(of, Accessor) else source.constant(of)


def accessor_of(given: Accessor | str) -> Accessor:
    """Returns an accessor, or that of a path: names joined by dots, `market.get_name()`.

    A name denotes a field, or with `()` a method without arguments. Raises InvalidObventError.
    """
    if isinstance(given, Accessor):
        return given
    found: Accessor = WHOLE
    for name in _parts(given, None):
        method = name.removesuffix("()")
        found = Invoke(found, method) if method != name else Access(found, name)
    return found


def are_field_accessors(accessors: Iterable[Accessor]) -> bool:
    """Whether there are accessors, and all of them read only fields."""
    found = list(accessors)
    return bool(found) and all(map(_is_field_accessor, found))


def _is_field_accessor(accessor: Accessor) -> bool:
    plain = accessor is WHOLE or (isinstance(accessor, Access) and accessor.default is NO_VALUE)
    return plain and all(map(_is_field_accessor, accessor.operands()))


def constant_key(value: Any) -> Hashable:
    """Returns a key that is equal for constants that no test can distinguish."""
    kind = type(value)
    if kind in (bool, int, float, str, bytes, type(None)):
        return (kind, repr(value))
    if kind is tuple:
        return (kind, tuple(map(constant_key, value)))
    return ("constant", id(value))


def _default_key(default: Any) -> Hashable:
    return None if default is NO_VALUE else constant_key(default)


def class_name(cls: type[Any] | None) -> str:
    """Returns the name of a class in errors; "any" without one."""
    return "any" if cls is None else cls.__qualname__


def _parts(names: object, cls: type[Any] | None) -> list[str]:
    if not isinstance(names, str):
        reason = f"{names!r} names nothing: expected text, as 'market.name'"
        raise InvalidObventError(class_name(cls), reason)
    return names.split(".")


def _checked_names(names: object, cls: type[Any] | None) -> list[str]:
    parts = _parts(names, cls)
    for each in parts:
        if not each.isidentifier() or keyword.iskeyword(each):
            reason = f"{each!r} in {names!r} is no name of a field or method"
            raise InvalidObventError(class_name(cls), reason)
    return parts


def _checked_methods(given: Any, cls: type[Any] | None) -> list[Any]:
    if isinstance(given, str):
        return list(_checked_names(given, cls))
    methods = [given] if callable(given) or not isinstance(given, Sequence) else list(given)
    found: list[Any] = []
    for each in methods:
        if isinstance(each, str):
            found += _checked_names(each, cls)
        elif callable(each) and hasattr(each, "__name__") and not isinstance(each, type):
            found.append(each)
        else:
            reason = f"{each!r} is no method: expected a name, or a function of a class"
            raise InvalidObventError(class_name(cls), reason)
    if not found:
        raise InvalidObventError(class_name(cls), f"no method is named: {given!r}")
    return found


def _require_method(function: Any, found: Any) -> Any:
    """Returns an object of a class that has a function. Raises TypeError for others."""
    if not has_method(function, type(found)):
        raise TypeError(f"{function.__qualname__} is no method of {type(found).__name__}")
    return found

"""Accessors: how a condition gets at what it asks of an obvent.

    Invoke("get_market.get_name")  # methods, one after the other
    Invoke("price_in", ("EUR",))  # with arguments: a tuple for each method
    Access("market.name")  # fields
    Invoke(Access("market"), "get_name")  # methods of what a field holds

An argument may be an accessor itself, of the same obvent. Methods are named, or given as functions;
then the object must be of the class that has this function, and a subclass may override it.

An accessor is one stage: a field or a method, and the accessor to whose value it is applied. So
those that begin alike have their beginning in common. Accessors are not changed once made.

Source: EPFL 2503 §3.5.1, §3.5.3, §4.5.1; figures 4.9 to 4.11.
"""

import ast
import keyword
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from contrada.errors import InvalidObventError
from contrada.typed.conditions import condition_source as writing
from contrada.typed.conditions.condition_source import ConditionSource
from contrada.typed.conditions.type_checks import (
    StandInArgument,
    checked_call,
    checked_field,
    is_of,
    text_of,
    united,
)

STAGES_MAX: Final = 32
"""Stages of an accessor, one applied to the other, arguments included. Beyond it:
InvalidObventError."""

Share: TypeAlias = Callable[["Accessor"], "Accessor"]
Method: TypeAlias = str | Callable[..., Any]


class NoDefaultValue:
    """Stands for no default."""


NO_VALUE: Final = NoDefaultValue()


class Accessor(ABC):
    """Gets something of an obvent.

    One of your own defines `eval`; then nothing more is known of it, and it is neither checked,
    shared nor lifted.

    Source: EPFL 2503 §4.5.1, figure 4.9.
    """

    depth: int = 0

    @abstractmethod
    def eval(self, obvent: Any) -> Any:
        """What it gets of this object. Raises what the object's methods raise."""

    def access(self, names: str, *, default: Any = NO_VALUE) -> "Access":
        """Fields of what it gets."""
        return Access(self, names, default=default)

    def invoke(
        self,
        methods: Method | Sequence[Method],
        *arguments: tuple[Any, ...],
        default: Any = NO_VALUE,
    ) -> "Invoke":
        """Methods of what it gets."""
        return Invoke(self, methods, *arguments, default=default)

    @property
    def key(self) -> Hashable:
        """The key that it shares with accessors that get the same from every object."""
        return ("accessor", id(self))

    def operands(self) -> tuple["Accessor", ...]:
        """The accessors whose values it takes."""
        return ()

    def rebuilt(self, share: Share) -> "Accessor":
        """The same, with others in the place of its operands."""
        return self

    def check(self, cls: type[Any]) -> Any:
        """The declared type of what it gets of objects of a class; Any where none is.

        Raises InvalidObventError for a field or method that its type does not have, and arguments
        that it does not take.
        """
        return Any

    def expression(self, writing: ConditionSource) -> ast.expr:
        """It as an expression."""
        return writing.call(self.eval, *_whole())


class Whole(Accessor):
    """The obvent itself: an accessor without stages."""

    @property
    def key(self) -> Hashable:
        """There is but one."""
        return "obvent"

    def eval(self, obvent: Any) -> Any:
        """The object."""
        return obvent

    def check(self, cls: type[Any]) -> Any:
        """The class."""
        return cls

    def expression(self, writing: ConditionSource) -> ast.expr:
        """The object's name."""
        return _whole()[0]

    def __str__(self) -> str:
        return "obvent"


WHOLE: Final = Whole()


class Stage(Accessor):
    """One access or invocation, and the accessor to whose value it is applied.

    Where it has a `default`, this stands for its value where it, or a stage before it, raises.
    """

    def __init__(self, of: Accessor, name: str, default: Any) -> None:
        self.of = of
        self.name = name
        self.default = default

    def __init_subclass__(cls, **options: Any) -> None:
        """Raises TypeError for one of your own, of which the ways of evaluating would not know."""
        super().__init_subclass__(**options)
        if Stage not in cls.__bases__:
            raise TypeError(f"{cls.__qualname__}: an accessor of your own derives from Accessor")

    def bound(self, cls: type[Any] | None) -> None:
        """Counts its stages, and checks it against a class, where one is given."""
        self.depth = 1 + max(each.depth for each in self.operands())
        if self.depth > STAGES_MAX:
            raise InvalidObventError(
                _name(cls), f"an accessor of more than STAGES_MAX = {STAGES_MAX} stages"
            )
        if cls is not None:
            self.check(cls)

    def eval(self, obvent: Any) -> Any:
        """What the stage gives, or the default. Raises what it raises where it has none."""
        if self.default is NO_VALUE:
            return self.taken(self.of.eval(obvent), obvent)
        try:
            return self.taken(self.of.eval(obvent), obvent)
        except Exception:  # noqa: BLE001 - the obvent's own code; that is what defaults are for
            return self.default

    def taken(self, found: Any, obvent: Any) -> Any:
        """What this stage alone gives."""
        raise NotImplementedError

    def or_default(self, declared: Any) -> Any:
        """The declared type of what it gets, that of its default included."""
        return declared if self.default is NO_VALUE else united([declared, type(self.default)])

    def operands(self) -> tuple[Accessor, ...]:
        """What it is applied to."""
        return (self.of,)

    def expression(self, writing: ConditionSource) -> ast.expr:
        """An attribute, or a call of the accessor where it has a default."""
        if self.default is not NO_VALUE:
            return super().expression(writing)
        return self.plain_expression(writing)

    def plain_expression(self, writing: ConditionSource) -> ast.expr:
        """It as an expression, without its default."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def _after(self, text: str) -> str:
        before = "" if self.of is WHOLE else f"{self.of}."
        default = "" if self.default is NO_VALUE else f" else {self.default!r}"
        return f"{before}{text}{default}" if not default else f"({before}{text}{default})"


class Access(Stage):
    """Fields, by their names with dots between them: of the obvent, or of what an accessor gets.

    `cls` is a class to check it against when it is made; a condition is checked anyway against the
    class that is subscribed. Raises InvalidObventError.

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
                raise InvalidObventError(_name(cls), reason)
            names, nested = nested, WHOLE
        *before, last = _checked_names(names, cls)
        for name in before:
            nested = Access(nested, name)
        super().__init__(nested, last, default)
        self.bound(cls)

    def taken(self, found: Any, obvent: Any) -> Any:
        """The value of the field."""
        return getattr(found, self.name)

    @property
    def key(self) -> Hashable:
        """A key made of the operand's key and the name."""
        return ("access", self.of.key, self.name, _default_key(self.default))

    def rebuilt(self, share: Share) -> Accessor:
        """Applied to another accessor."""
        return Access(share(self.of), self.name, default=self.default)

    def check(self, cls: type[Any]) -> Any:
        """The type of the field."""
        return self.or_default(checked_field(self.of.check(cls), self.name, str(self)))

    def plain_expression(self, writing: ConditionSource) -> ast.expr:
        """`….name`."""
        return ast.Attribute(writing.value(self.of), self.name, ast.Load())

    def __str__(self) -> str:
        return self._after(self.name)


class Invoke(Stage):
    """Methods, by their names with dots between them, or as functions: `[Quote.at,
    OfferBoard.name]`.

    Then come their arguments: a tuple for each method, or nothing where none takes any. A nested
    accessor may stand first; `cls` as of `Access`. Raises InvalidObventError.

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
                raise InvalidObventError(_name(cls), f"no method of {nested} is named")
            methods, *arguments = given
        else:
            nested, arguments = WHOLE, list(given)
        *before, last = _checked_methods(methods, cls)
        arguments = arguments or [()] * (len(before) + 1)
        if len(arguments) != len(before) + 1 or not all(type(it) is tuple for it in arguments):
            expected = f"expected a tuple of arguments for each of {len(before) + 1} methods"
            raise InvalidObventError(_name(cls), f"{methods!r} with {arguments!r}: {expected}")
        for method, taken in zip(before, arguments[:-1], strict=True):
            nested = Invoke(nested, [method], taken)
        self.function = None if isinstance(last, str) else last
        self.arguments: tuple[Any, ...] = arguments[-1]
        self._of_accessors = any(isinstance(each, Accessor) for each in self.arguments)
        super().__init__(nested, last if isinstance(last, str) else last.__name__, default)
        self.bound(cls)

    def taken(self, found: Any, obvent: Any) -> Any:
        """What the method returns. Raises TypeError where it is a function's of another class."""
        if self.function is not None and not is_of(self.function, type(found)):
            raise TypeError(f"{self.function.__qualname__} is no method of {type(found).__name__}")
        if not self._of_accessors:
            return getattr(found, self.name)(*self.arguments)
        taken = [it.eval(obvent) if isinstance(it, Accessor) else it for it in self.arguments]
        return getattr(found, self.name)(*taken)

    @property
    def key(self) -> Hashable:
        """By what it is applied to, the method and its arguments."""
        arguments = tuple(
            each.key if isinstance(each, Accessor) else constant_key(each)
            for each in self.arguments
        )
        function = None if self.function is None else id(self.function)
        return ("invoke", self.of.key, self.name, function, arguments, _default_key(self.default))

    def operands(self) -> tuple[Accessor, ...]:
        """The accessor that it is applied to, and those among its arguments."""
        return (self.of, *(each for each in self.arguments if isinstance(each, Accessor)))

    def rebuilt(self, share: Share) -> Accessor:
        """With other operands."""
        arguments = tuple(
            share(each) if isinstance(each, Accessor) else each for each in self.arguments
        )
        method = self.name if self.function is None else self.function
        return Invoke(share(self.of), [method], arguments, default=self.default)

    def check(self, cls: type[Any]) -> Any:
        """The type that the method is declared to return."""
        found = self.of.check(cls)
        taken = [
            StandInArgument(it.check(cls)) if isinstance(it, Accessor) else it
            for it in self.arguments
        ]
        return self.or_default(checked_call(found, self.name, self.function, taken, str(self)))

    def plain_expression(self, writing: ConditionSource) -> ast.expr:
        """`….name(…)`."""
        taken = [
            writing.value(each, looked_into=False)
            if isinstance(each, Accessor)
            else writing.constant(each)
            for each in self.arguments
        ]
        found = writing.value(self.of, looked_into=self.function is None)
        if self.function is not None:
            found = writing.call(_ConformanceTest(self.function), found)
        return ast.Call(ast.Attribute(found, self.name, ast.Load()), list(taken), [])

    def __str__(self) -> str:
        return self._after(f"{self.name}({', '.join(map(text_of, self.arguments))})")


def accessor_of(given: Accessor | str) -> Accessor:
    """An accessor, or a path: names with dots between them, `market.get_name()`.

    A name is that of a field, or with `()` of a method without arguments. Raises
    InvalidObventError.
    """
    if isinstance(given, Accessor):
        return given
    found: Accessor = WHOLE
    for name in _parts(given, None):
        method = name.removesuffix("()")
        found = Invoke(found, method) if method != name else Access(found, name)
    return found


def are_of_fields(accessors: Iterable[Accessor]) -> bool:
    """Whether there are accessors, all of which read only fields."""
    found = list(accessors)
    return bool(found) and all(map(_is_of_fields, found))


def _is_of_fields(accessor: Accessor) -> bool:
    plain = accessor is WHOLE or (isinstance(accessor, Access) and accessor.default is NO_VALUE)
    return plain and all(map(_is_of_fields, accessor.operands()))


def constant_key(value: Any) -> Hashable:
    """The key that a constant shares with all constants that no test can tell from it."""
    kind = type(value)
    if kind in (bool, int, float, str, bytes, type(None)):
        return (kind, repr(value))
    if kind is tuple:
        return (kind, tuple(map(constant_key, value)))
    return ("constant", id(value))


def _default_key(default: Any) -> Hashable:
    return None if default is NO_VALUE else constant_key(default)


def _whole() -> tuple[ast.expr]:
    return (writing.whole(),)


def _name(cls: type[Any] | None) -> str:
    return "any" if cls is None else cls.__qualname__


def _parts(names: object, cls: type[Any] | None) -> list[str]:
    if not isinstance(names, str):
        reason = f"{names!r} names nothing: expected text, as 'market.name'"
        raise InvalidObventError(_name(cls), reason)
    return names.split(".")


def _checked_names(names: object, cls: type[Any] | None) -> list[str]:
    parts = _parts(names, cls)
    for each in parts:
        if not each.isidentifier() or keyword.iskeyword(each):
            reason = f"{each!r} in {names!r} is no name of a field or method"
            raise InvalidObventError(_name(cls), reason)
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
            raise InvalidObventError(_name(cls), reason)
    if not found:
        raise InvalidObventError(_name(cls), f"no method is named: {given!r}")
    return found


class _ConformanceTest:
    """Gives back an object of a class that has a function, and refuses others."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, found: Any) -> Any:
        if not is_of(self.function, type(found)):
            raise TypeError(f"{self.function.__qualname__} is no method of {type(found).__name__}")
        return found

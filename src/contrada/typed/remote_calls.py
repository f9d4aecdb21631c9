"""`Reference`: the address of a service inside an obvent; and the obvents of calls to it.

The address is a unique text, in the attribute of its field. The holder of a reference calls the
service by publishing a `RemoteCall`. The service's owner subscribes to these, and publishes a
`RemoteAnswer`. The annotations of the interface decide the encoding of arguments and results.

Source: EPFL 2503 §3.3.3 (proxies in obvents), §4.6.3 (remote calls and events hand in hand).
"""

import inspect
import typing
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from contrada.errors import InvalidObventError
from contrada.typed.body_values import BodyCodec, body_codec_of
from contrada.typed.obvent import Obvent
from contrada.typed.obvent_codec import object_codec

S_co = TypeVar("S_co", covariant=True)

RENEWAL: Final = ""
"""The method name of a call that only renews the lease."""


@dataclass(frozen=True, slots=True)
class Reference(Generic[S_co]):
    """The address of a remote service: a field of `Reference[StockMarket]`."""

    address: str


@dataclass(slots=True)
class RemoteCall(Obvent, name="contrada.Call"):
    """A call of a method of a service, by a holder of a reference to it."""

    target: str
    caller: str
    number: int
    method: str
    arguments: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class RemoteAnswer(Obvent, name="contrada.Answer"):
    """The result of a call: a value, or the text of an error."""

    caller: str
    number: int
    value: Any = None
    error: str | None = None


class RemoteInterface:
    """The methods of an interface, with the codecs of their arguments and results.

    These are the public methods of a class or a Protocol, `async` ones included. Raises
    InvalidObventError for annotations that have no codec.
    """

    def __init__(self, interface: type[Any]) -> None:
        self.name = interface.__qualname__
        self.methods: Mapping[str, RemoteMethod] = {
            name: RemoteMethod(self.name, name, member)
            for name, member in inspect.getmembers(interface, inspect.isfunction)
            if not name.startswith("_")
        }
        if not self.methods:
            raise InvalidObventError(self.name, "it has no methods that could be called")


class RemoteMethod:
    """One method, with the codecs of its arguments and its result."""

    def __init__(self, owner: str, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self._place = f"{owner}.{name}"
        signature = inspect.signature(function)
        self._signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        for each in self._signature.parameters.values():
            if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                raise InvalidObventError(self._place, f"{each}: name each argument")
        hints = typing.get_type_hints(function, include_extras=True)
        names = self._signature.parameters
        self._arguments = [self._codec_of(hints.get(name, Any)) for name in names]
        self._value = self._codec_of(hints.get("return", Any))

    def _codec_of(self, annotation: Any) -> BodyCodec:
        try:
            return body_codec_of(annotation, object_codec)
        except TypeError as error:
            raise InvalidObventError(self._place, str(error)) from None

    def write_arguments(self, *given: Any, **named: Any) -> list[Any]:
        """Returns the encoded arguments. Raises TypeError as a call does, InvalidObventError."""
        bound = self._signature.bind(*given, **named)
        bound.apply_defaults()
        pairs = zip(self._arguments, bound.arguments.items(), strict=True)
        return [self._write(element, name, value) for element, (name, value) in pairs]

    def read_arguments(self, arguments: list[Any]) -> inspect.BoundArguments:
        """Returns received arguments, bound to the signature. Raises InvalidObventError."""
        if len(arguments) != len(self._arguments):
            reason = f"{len(arguments)} arguments: expected {len(self._arguments)}"
            raise InvalidObventError(self._place, reason)
        values = [self._read(*pair) for pair in zip(self._arguments, arguments, strict=True)]
        named = OrderedDict(zip(self._signature.parameters, values, strict=True))
        return inspect.BoundArguments(self._signature, named)

    def write_value(self, value: Any) -> Any:
        """Returns the encoded result. Raises InvalidObventError."""
        return self._write(self._value, "its value", value)

    def read_value(self, value: Any) -> Any:
        """Returns a received result. Raises InvalidObventError."""
        return self._read(self._value, value)

    def _write(self, element: BodyCodec, name: str, value: Any) -> Any:
        try:
            if element.holds(value):
                return element.write(value, 1)
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidObventError(self._place, f"{name} = {value!r}: {error}") from None
        raise InvalidObventError(self._place, f"{name} = {value!r}: of another type")

    def _read(self, element: BodyCodec, value: Any) -> Any:
        try:
            return element.read(value)
        except (ValueError, TypeError) as error:
            raise InvalidObventError(self._place, f"{value!r}: {error}") from None

"""The errors of Contrada.

`ContradaError` is the root. Each error carries the offending values as attributes, so that a
program can act on them, and its message has the fault, its place, and the expected form in one
line.
"""

from collections.abc import Sequence
from typing import Self


class ContradaError(Exception):
    """The root of all errors that Contrada raises on purpose.

    `published` is set on an error that ends a batch: the number of notifications already published.
    """

    published: int | None = None

    def copy(self) -> Self:
        """Returns an equal error: a raised one gets a traceback, notes and a count of its own."""
        copy = type(self).__new__(type(self), *self.args)
        vars(copy).update(vars(self))
        return copy


class InvalidValueError(ContradaError):
    """A value is of no domain, or outside its domain. Carries `value` and `reason`."""

    def __init__(self, value: object, reason: str) -> None:
        super().__init__(f"{_shown(value)}: {reason}")
        self.value, self.reason = value, reason


class InvalidNameError(ContradaError):
    """An attribute's name is not allowed. Carries `name` and `reason`."""

    def __init__(self, name: object, reason: str) -> None:
        super().__init__(f"attribute name {_shown(name)}: {reason}")
        self.name, self.reason = name, reason


class InvalidNotificationError(ContradaError):
    """An attribute cannot be part of a notification. Carries `name`, `value`, `reason`.

    The name is None where the value stands for all attributes.
    """

    def __init__(self, name: object, value: object, reason: str) -> None:
        place = "found" if name is None else f"attribute {_shown(name)} ="
        super().__init__(f"{place} {_shown(value)}: {reason}")
        self.name, self.value, self.reason = name, value, reason


class AttributeValueError(ContradaError):
    """An attribute is not as its reader expects. Carries `name`, `values` (of it), `expected`."""

    def __init__(self, name: str, values: tuple[object, ...], expected: str) -> None:
        found = _shown(values[0]) if len(values) == 1 else f"{len(values) or 'no'} values"
        super().__init__(f"attribute {name!r}: expected {expected}, found {found}")
        self.name, self.values, self.expected = name, values, expected


class InvalidFilterError(ContradaError):
    """A constraint is invalid. Carries `operator`, `constants`, `reason`, perhaps `name`."""

    def __init__(
        self, operator: str, constants: tuple[object, ...], reason: str, name: str | None = None
    ) -> None:
        shown = ", ".join(_shown(_as_text(constant)) for constant in constants)
        place = f"attribute {name!r}: " if name is not None else ""
        super().__init__(f"{place}{operator} ({shown}): {reason}")
        self.operator, self.constants, self.reason, self.name = operator, constants, reason, name


class UnknownOperatorError(ContradaError):
    """An unregistered operator is evaluated. Carries `operator`."""

    def __init__(self, operator: str, known: tuple[str, ...] = ()) -> None:
        hint = f"; known operators: {' '.join(known)}" if known else ""
        super().__init__(f"unknown operator {operator!r}{hint}")
        self.operator, self.known = operator, known


class ExtensionError(ContradaError):
    """An extension cannot be loaded or registered. Carries `extension` and `reason`."""

    def __init__(self, extension: str, reason: str) -> None:
        super().__init__(f"extension {extension!r}: {reason}")
        self.extension, self.reason = extension, reason


class ParseError(ContradaError):
    """A text is not in the syntax. Carries `line`, `column` (from 1), `found`, `expected`."""

    def __init__(self, line: int, column: int, found: str, expected: str) -> None:
        self.what = f"found {found}, expected {expected}"
        """The message without the place."""
        super().__init__(f"line {line}, column {column}: {self.what}")
        self.line, self.column, self.found, self.expected = line, column, found, expected


class LimitError(ContradaError):
    """An input is larger than a named limit. Carries `limit` (its name), `maximum`, `size`."""

    def __init__(self, limit: str, maximum: int, size: int | None = None) -> None:
        found = f", found {size}" if size is not None else ""
        super().__init__(f"more than {limit} = {maximum} allows{found}")
        self.limit, self.maximum, self.size = limit, maximum, size


class EncodingError(ContradaError):
    """Bytes or JSON cannot be decoded, or encoded. Carries `what` (the format) and `reason`."""

    def __init__(self, what: str, reason: str, *, writing: bool = False) -> None:
        super().__init__(f"cannot {'write' if writing else 'read'} {what}: {reason}")
        self.what, self.reason = what, reason


class InputError(ContradaError):
    """A file, row or document is malformed. Carries `source`, `line`, `column`, `reason`."""

    def __init__(
        self, source: str, reason: str, line: int | None = None, column: int | None = None
    ) -> None:
        place = "".join(f":{number}" for number in (line, column) if number is not None)
        super().__init__(f"{source}{place}: {reason}")
        self.source, self.line, self.column, self.reason = source, line, column, reason


class InvalidCellError(InputError):
    """A cell of a row cannot be read as its declared type. Carries `name` and `reason`."""

    def __init__(self, name: str, error: ContradaError) -> None:
        super().__init__(f"column {name!r}", str(error))
        self.name = name
        self.reason = f"column {name!r}: {error}"


class InvalidCombinationError(ContradaError):
    """A question asks for a value that cannot be computed. Carries `given` and `reason`."""

    def __init__(self, given: object, reason: str) -> None:
        super().__init__(f"{_shown(given)}: {reason}")
        self.given, self.reason = given, reason


class UnsatisfiableFilterError(ContradaError):
    """A subscription could never match. Carries `filter`."""

    def __init__(self, filter: object) -> None:
        super().__init__(filter)
        self.filter = filter

    def __str__(self) -> str:
        """Builds the message when it is read, and not of each of many filters: it may be large."""
        members = getattr(self.filter, "filters", ())
        if len(members) > _MEMBERS_SHOWN_MAX:
            return f"no notification can match any of the {len(members)} filters"
        return f"no notification can match the filter {shortened(str(self.filter), _SHOWN_MAX)}"


class ServiceError(ContradaError):
    """A service cannot carry out a request. Carries `reason`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ServiceClosedError(ServiceError):
    """The service, or the connection to it, is closed."""


class NotPermittedError(ServiceError):
    """The user has no right to this request. Carries `reason` and `refused`.

    `refused` are the positions of the refused notifications of a publication at best effort; the
    rest is published. Above it there are none: nothing of such a publication is published.
    """

    refused: tuple[int, ...] = ()  # Also where it is made from a reply, without these arguments.

    def __init__(self, reason: str, refused: Sequence[int] = ()) -> None:
        super().__init__(reason)
        self.refused = tuple(refused)


class QuotaError(ServiceError):
    """A request exceeds a quota of its user, which it names. Carries `reason`.

    `retry_in_s`: a publication beyond a rate may succeed after so many seconds; else 0.
    """

    def __init__(self, reason: str, retry_in_s: int = 0) -> None:
        super().__init__(reason)
        self.retry_in_s = retry_in_s


class TooSlowError(ServiceError):
    """A subscription ended because its subscriber did not keep up; see `WhenFull`."""

    def __init__(self) -> None:
        super().__init__("the subscription has ended: its subscriber did not keep up")


class AddressError(ContradaError):
    """A service's address is malformed. Carries `address` and `expected`."""

    def __init__(self, address: str, expected: str) -> None:
        super().__init__(f"address {address!r}: expected {expected}")
        self.address, self.expected = address, expected


class ConnectionFailedError(ServiceError):
    """A broker cannot be reached, or the connection is lost. Carries `address` and `reason`.

    `fault` is the name of the broker's reason to refuse the connection, if it gave one, or "no TLS"
    after a failed handshake. `may_be_published`: publications were being sent, and their fate is
    unknown.
    """

    def __init__(
        self, address: str, reason: str, *, may_be_published: bool = False, fault: str = ""
    ) -> None:
        super().__init__(f"{address}: {reason}")
        self.fault, self.address = fault, address
        self.reason, self.may_be_published = reason, may_be_published


class PeerLostError(ConnectionFailedError):
    """The other system of a bridge is lost, or cannot be reached; another attempt may succeed."""


class NoPlaceError(ServiceError):
    """The other system of a bridge has no place for a record, or does not permit this bridge to
    write there: another attempt may succeed.
    """


class ProtocolError(ServiceError):
    """The other side broke the protocol. Carries `reason`."""


class FrameError(ProtocolError):
    """Bytes that are no frame of the protocol, or an unexpected frame. Carries `code`.

    `code` is the name of the fault; it is sent to the other side, and brokers count by it.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(shortened(reason))
        self.code = code


class DeliveryError(ServiceError):
    """A durable subscription cannot carry out a request. Carries `reason`."""


class CannotPublishError(ServiceError):
    """A delivery guarantee cannot be met, so nothing was published. Carries `reason`.

    `may_be_published`: for a repeated publication it is unknown if the first attempt succeeded. If
    a durable subscription is full, it carries `subscription`; if a server has not accepted its
    shipments, that is empty. In both cases it carries `records` and `held_bytes`, the size of the
    queue.
    """

    def __init__(
        self,
        subscription: str,
        records: int = 0,
        held_bytes: int = 0,
        *,
        reason: str = "",
        may_be_published: bool = False,
    ) -> None:
        reason = reason or f"the durable subscription {subscription!r} is full"
        held = f": it keeps {records} records, {held_bytes} bytes" if records else ""
        super().__init__(reason + held)
        self.reason, self.may_be_published = reason, may_be_published
        self.subscription, self.records, self.held_bytes = subscription, records, held_bytes


class CannotSubscribeError(ServiceError):
    """A handle cannot be activated. Carries `reason`."""


class CannotUnsubscribeError(ServiceError):
    """A handle cannot be deactivated. Carries `reason`."""


class RemoteCallError(ServiceError):
    """A remote service raised, or did not answer in time. Carries `reason`."""


class StoreError(ContradaError):
    """A store cannot read or write. Carries `reason`. Unsynced records may be lost."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StoreDamagedError(StoreError):
    """A part of a store is damaged: it can be read neither now nor later."""


class LeaseError(StoreError):
    """A store with a standby cannot be used now: by this broker later, or by the next leader.

    Nobody gets it as an answer: publications and acknowledgements wait for either.
    """


class StoreFullError(StoreError):
    """A store has no room for more. Nothing of the write was stored."""


class InvalidObventError(ContradaError):
    """An obvent class or object cannot be published. Carries `type_name` and `reason`."""

    def __init__(self, type_name: str, reason: str) -> None:
        super().__init__(f"obvent type {type_name!r}: {reason}")
        self.type_name, self.reason = type_name, reason


class EngineError(ContradaError):
    """Spark ended a job, or itself. Carries `reason`; the cause has the full error."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Spark ended the run: {reason}")
        self.reason = reason


class NotVerifiedError(ContradaError):
    """A notification's signature could not be verified. Carries `reason`, `publisher`, `id`.

    `reason` is one of a few fixed phrases, so that errors can be counted by it.
    """

    def __init__(self, reason: str, publisher: str, id_: str) -> None:
        super().__init__(f"notification {_shown(id_)} of {_shown(publisher)}: {reason}")
        self.reason, self.publisher, self.id = reason, publisher, id_


class MissingRequirementError(ContradaError):
    """A requirement of a part of Contrada is not installed. Carries `what` (its name), `remedy`."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what} is missing: {remedy}")
        self.what, self.remedy = what, remedy


class RefusedRequestError(ContradaError):
    """An HTTP request cannot be done. Carries `status`, `reason`, `headers` and `details`.

    `details` complete the reason, for example with the index of an invalid event.
    """

    def __init__(
        self, status: int, reason: str, *, headers: dict[str, str] | None = None, **details: object
    ) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason
        self.headers = headers or {}
        self.details = details


class RefusedRuleError(ContradaError):
    """A rule of another dialect cannot be read. Carries `dialect`, `reason`, `found`, `place`.

    `reason` is one of a few fixed phrases per dialect, so that refusals can be counted by it;
    `found` is the offending part, or the ParseError for it, `place` its position in the rule.
    """

    def __init__(self, dialect: str, reason: str, found: object = None, place: str = "") -> None:
        shown = "" if found is None else f": {_shown(found)}"
        if isinstance(found, ParseError):
            shown = f": {found.what}"
        at = f"{place}: " if place else ""
        super().__init__(f"{dialect}: {at}{reason}{shown}")
        self.dialect, self.reason, self.found, self.place = dialect, reason, found, place


_SHOWN_MAX = 80
_MEMBERS_SHOWN_MAX = 4


class FormatError(ServiceError):
    """A wrong use of the format `contrada` of Spark.

    Carries `condition`, the error class. The message begins with it in brackets, as those of Spark
    do, since Spark passes on the text only.
    """

    def __init__(self, condition: str, reason: str) -> None:
        super().__init__(f"[CONTRADA_{condition}] {reason}")
        self.condition = f"CONTRADA_{condition}"


def _shown(value: object) -> str:
    """Returns a value for an error message, cut so that a hostile one does not fill the screen."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  a caller's repr may raise anything
        text = f"<{type(value).__name__} whose repr fails: {type(error).__name__}>"
    return shortened(text, _SHOWN_MAX)


def _as_text(constant: object) -> object:
    """Returns a constant in readable form: operators on texts hold bytes."""
    try:
        return constant.decode() if isinstance(constant, bytes) else constant
    except UnicodeDecodeError:
        return constant


def shortened(text: str, most: int = 500) -> str:
    """Returns a text for a person, cut if it is too long: it may quote a stranger's input."""
    return text if len(text) <= most else text[: most - 1] + "…"

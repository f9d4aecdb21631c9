"""`qos_of`: the delivery guarantees of a class, from the types that it inherits."""

from dataclasses import dataclass
from typing import Any

import pytest

import contrada as ct
from contrada.delivery.delivery_class import delivery_class
from contrada.errors import InvalidObventError
from contrada.typed import Qos, qos_of


@dataclass
class Plain(ct.Obvent, name="qos.Plain"):
    company: str = "x"


@dataclass
class Said(Plain, ct.Unreliable, name="qos.Said"):
    pass


@dataclass
class Sure(Plain, ct.Reliable, name="qos.Sure"):
    pass


@dataclass
class Kept(Plain, ct.Certified, name="qos.Kept"):
    pass


@dataclass
class InTurn(Plain, ct.FIFOOrder, name="qos.InTurn"):
    pass


@dataclass
class Caused(ct.Certified, InTurn, ct.CausalOrder, name="qos.Caused"):
    pass


@dataclass
class Total(Plain, ct.TotalOrder, name="qos.Total"):
    pass


@dataclass
class TotalToo(ct.Certified, ct.CausalOrder, Total, name="qos.TotalToo"):
    pass


@dataclass
class Late(ct.Expiring, Plain, name="qos.Late"):
    ttl_s: float = 1.5


@dataclass
class First(ct.Prioritized, ct.Expiring, Plain, name="qos.First"):
    ttl_s = 2
    urgent: bool = False

    @property
    def priority(self) -> int:
        return 9 if self.urgent else 1


@dataclass
class SureAndLate(ct.Expiring, ct.Prioritized, Sure, name="qos.SureAndLate"):
    ttl_s: float = 1.0


@dataclass
class InTurnAndFirst(ct.Prioritized, InTurn, name="qos.InTurnAndFirst"):
    priority: int = 9


@pytest.mark.parametrize(
    ("cls", "delivery", "overruled"),
    [
        (Plain, "best-effort", 0),
        (Said, "best-effort", 0),
        (Sure, "reliable", 0),
        (Kept, "certified", 0),
        (InTurn, "reliable fifo", 0),
        (Caused, "certified causal", 0),
        (Total, "reliable total:qos.Total", 0),
        (TotalToo, "certified causal total:qos.Total", 0),
        (SureAndLate, "reliable", 2),
        (InTurnAndFirst, "reliable fifo", 1),
    ],
)
def test_classes_resolve_to_guarantees(cls: type[Any], delivery: str, overruled: int) -> None:
    """Objects would be delivered with weaker guarantees than their type has."""
    found = qos_of(cls)
    assert (found.delivery, len(found.overruled)) == (delivery, overruled)
    delivery_class(found.delivery)
    envelope = cls().to_notification().envelope
    assert (envelope.delivery, envelope.ttl_us) == (delivery, None)
    assert envelope.priority == ct.Envelope().priority


def test_expiring_and_prioritized_objects_have_their_values() -> None:
    """They would never expire, or wait behind less important ones."""
    assert Late().to_notification().envelope.ttl_us == 1_500_000
    envelope = First(urgent=True).to_notification().envelope
    assert (envelope.ttl_us, envelope.priority) == (2_000_000, 9)
    assert First().to_notification().envelope.priority == 1
    assert qos_of(First) == Qos("best-effort", True, True, ())


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Late(ttl_s=0), "ttl_s = 0"),
        (lambda: Late(ttl_s=float("nan")), "ttl_s = nan"),
        (lambda: Late(ttl_s=float("inf")), "ttl_s = inf"),
        (lambda: type("Silent", (ct.Expiring,), {}, name="qos.Silent")(), "has no ttl_s"),
        (lambda: type("High", (ct.Prioritized,), {"priority": 10}, name="qos.High")(), "@priority"),
    ],
)
def test_invalid_times_and_priorities_are_refused(made: Any, said: str) -> None:
    """The object would be published with another value."""
    with pytest.raises(InvalidObventError, match=said):
        made().to_notification()


def test_envelopes_of_a_class_are_shared() -> None:
    """Each publication would make another envelope, and two with a priority."""
    for cls in (Plain, Sure, Caused):
        assert cls().to_notification().envelope is cls().to_notification().envelope


def test_an_unknown_subtype_without_a_time_is_refused() -> None:
    """The error would name no class."""
    strange = ct.Notification.with_marks({}, ["qos.Soon", "qos.Bare", "Timely"])

    class Bare(ct.Expiring, name="qos.Bare"):
        pass

    got = Bare.from_notification(strange)
    with pytest.raises(InvalidObventError, match=r"qos\.Bare.* has no ttl_s"):
        got.to_notification()


def test_two_total_orders_are_refused() -> None:
    """Its objects would be in one order with half of its supertypes only."""

    @dataclass
    class Other(ct.TotalOrder, name="qos.Other"):
        pass

    @dataclass
    class Both(Total, Other, name="qos.Both"):
        pass

    with pytest.raises(InvalidObventError, match=r"two total orders, of qos\.Other and qos\.Total"):
        qos_of(Both)

    @dataclass
    class Blank(ct.TotalOrder, name="a b"):
        pass

    with pytest.raises(InvalidObventError, match="no blanks"):
        qos_of(Blank)

    @dataclass
    class Long(ct.TotalOrder, name="x" * 245):
        pass

    with pytest.raises(InvalidObventError, match="ENVELOPE_TEXT_BYTES_MAX"):
        qos_of(Long)


def test_qualities_are_types() -> None:
    """Nobody could subscribe to all certified obvents."""
    assert ct.Reliable.to_filters().covers(Kept.to_filters())
    assert ct.Certified.to_filters().matches(Caused().to_notification())
    assert not ct.Certified.to_filters().matches(Sure().to_notification())


def test_renamed_qualities_keep_their_marks() -> None:
    """Brokers and clients of earlier releases would not match them."""
    assert ct.Expiring.to_filters().matches(ct.Notification.with_marks({}, ["Timely"]))
    assert ct.Prioritized.to_filters().matches(ct.Notification.with_marks({}, ["Prioritary"]))
    with pytest.warns(DeprecationWarning, match="contrada.Timely is contrada.Expiring now"):
        assert ct.Timely is ct.Expiring
    with pytest.warns(DeprecationWarning, match="contrada.Prioritary is contrada.Prioritized now"):
        assert ct.Prioritary is ct.Prioritized

"""Collection classes, their requirements, and classes derived from them."""

from dataclasses import dataclass
from typing import Any, TypeVar, assert_type

import pytest

import contrada as ct
from contrada.errors import InvalidObventError, ServiceError
from contrada.service.embedded_service import EmbeddedService
from contrada.typed.collections import (
    CausalBag,
    CausalSet,
    Collection,
    FIFOBag,
    FIFOSet,
    PersistentBag,
    PersistentSet,
    Quality,
    SortedBag,
    SortedSet,
    StrongBag,
    StrongSet,
    Subject,
    WeakBag,
    WeakSet,
)
from tests.asynchronous import on_loop

T = TypeVar("T")


@dataclass
class Plain(ct.Obvent, name="kinds.Plain"):
    number: int = 0


@dataclass
class Sure(Plain, ct.Reliable, name="kinds.Sure"): ...


@dataclass
class Queued(Plain, ct.FIFOOrder, name="kinds.Queued"): ...


@dataclass
class Caused(Plain, ct.CausalOrder, name="kinds.Caused"): ...


@dataclass
class Ranked(Plain, ct.TotalOrder, name="kinds.Ranked"): ...


@dataclass
class Kept(Plain, ct.Certified, name="kinds.Kept"): ...


@dataclass
class Everything(Kept, Caused, ct.TotalOrder, name="kinds.Everything"): ...


class Ledger(PersistentSet[T], CausalSet[T]):
    """A derived class."""


BAGS: dict[Any, Any] = {
    WeakBag: WeakSet,
    StrongBag: StrongSet,
    FIFOBag: FIFOSet,
    CausalBag: CausalSet,
    SortedBag: SortedSet,
    PersistentBag: PersistentSet,
}
GIVEN: dict[type[Plain], set[Any]] = {
    Plain: {WeakBag},
    Sure: {WeakBag, StrongBag},
    Queued: {WeakBag, StrongBag, FIFOBag},
    Caused: {WeakBag, StrongBag, FIFOBag, CausalBag},
    Ranked: {WeakBag, StrongBag, SortedBag},
    Kept: {WeakBag, StrongBag, PersistentBag},
    Everything: set(BAGS),
}


@pytest.mark.parametrize("cls", GIVEN)
def test_a_collection_promises_no_more_than_its_type(cls: type[Plain]) -> None:
    """A collection would promise more than its publishers do."""
    for bag, set_ in BAGS.items():
        for kind in (bag, set_):
            options: Any = {"name": "x"} if issubclass(kind, PersistentBag) else {}
            if bag in GIVEN[cls]:
                made = kind(EmbeddedService(), cls, **options)
                assert made.is_set == (kind is set_)
            else:
                with pytest.raises(InvalidObventError, match=rf"a {kind.__name__} promises \w+"):
                    kind(EmbeddedService(), cls, **options)


def test_stronger_collections_are_subtypes() -> None:
    """Code for a weak collection would refuse a strong one."""
    for bag, set_ in BAGS.items():
        assert issubclass(set_, bag)
        assert issubclass(set_, WeakSet)
        assert issubclass(bag, WeakBag)
        assert not issubclass(bag, WeakSet)


def test_a_class_of_ones_own_promises_what_its_bases_do() -> None:
    """Each combination would have to be in the library."""
    registrations = Ledger(EmbeddedService(), Everything, name="x")
    assert registrations.promises == {
        Quality.RELIABLE,
        Quality.CERTIFIED,
        Quality.FIFO,
        Quality.CAUSAL,
    }
    assert registrations.is_set
    with pytest.raises(InvalidObventError, match="a Ledger promises fifo and causal"):
        Ledger(EmbeddedService(), Kept, name="x")


def test_a_misspelt_promise_is_refused() -> None:
    """A class would silently promise nothing."""
    with pytest.raises(TypeError):
        type("Wrong", (WeakBag,), {}, promisses=["fifo"])
    with pytest.raises(ValueError, match="order"):
        type("Wrong", (WeakBag,), {}, promises=["order"])


@on_loop
async def test_implied_guarantees_are_promised() -> None:
    """A class that names an order would be best effort, and lose elements for a slow consumer."""

    class Ordered(WeakBag[T], promises=["causal"]):
        pass

    assert Ordered.promises == {Quality.RELIABLE, Quality.FIFO, Quality.CAUSAL}
    async with EmbeddedService() as service, Ordered(service, Caused).get() as consumer:
        (standing,) = service.statistics().delivery.logs  # type: ignore[union-attr]
        assert standing
        await Ordered(service, Caused).add(Caused(1))
        assert await consumer.get(5) == Caused(1)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (WeakSet, "best-effort"),
        (StrongBag, "reliable"),
        (CausalBag, "reliable causal"),
        (SortedSet, "reliable total:/"),
        (PersistentBag, "certified"),
        (Ledger, "certified causal"),
    ],
)
def test_a_subject_gets_what_its_collection_promises(kind: Any, words: str) -> None:
    """Without a type nothing would decide the delivery."""
    options: Any = {"name": "x"} if issubclass(kind, PersistentBag) else {}
    assert kind(EmbeddedService(), Subject("/a"), **options).delivery == words


def test_a_domain_is_a_class_or_a_subject() -> None:
    """A wrong argument would be discovered at the first `add`."""
    with pytest.raises(InvalidObventError, match="expected a class of obvents"):
        WeakBag(EmbeddedService(), ct.Filter("a = 1"))  # type: ignore[call-overload]
    with pytest.raises(InvalidObventError, match="no class of obvents"):
        WeakBag(EmbeddedService(), int)
    with pytest.raises(InvalidObventError, match="of a subject already"):
        WeakBag(EmbeddedService(), Subject("/a"), subject="/b")  # type: ignore[call-overload]
    with pytest.raises(ServiceError, match="holds = 0"):
        WeakBag(EmbeddedService(), Plain, holds=0)
    with pytest.raises(ServiceError, match="has no name"):
        WeakBag(EmbeddedService(), Plain, name="x")
    with pytest.raises(TypeError, match="abstract"):
        Collection(EmbeddedService(), Plain)  # type: ignore[abstract]


def test_types_are_inferred() -> None:
    """Type checkers would infer objects without a type."""
    assert_type(WeakBag(EmbeddedService(), Plain), WeakBag[Plain])
    assert_type(StrongSet(EmbeddedService(), Subject("/a")), StrongSet[ct.Notification])


@pytest.mark.parametrize("name", ["a/b", 5])
def test_a_name_is_not_within_another(name: Any) -> None:
    """A consumer `b/c` of `a` would share with a consumer `c` of another collection, `a/b`."""
    with pytest.raises(ServiceError, match="without a slash"):
        PersistentBag(EmbeddedService(), Kept, name=name)

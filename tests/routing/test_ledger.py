"""The ledger gives back exactly what was asked for under an identity."""

import pytest

from contrada.errors import LimitError
from contrada.routing.router_messages import Client, Neighbour, Reason, Way
from contrada.routing.tables import registrations as module
from contrada.routing.tables.registrations import Ledger, LedgerStatistics
from tests.routing.refused import refused


def test_entries_are_kept_by_origin_and_identity() -> None:
    """One client could withdraw another one's subscription, or a neighbour's of its name."""
    ledger: Ledger[str] = Ledger()
    ledger.add(Client("a"), "1", "of the client")
    ledger.add(Way(Neighbour("a")), "1", "of the neighbour")
    ledger.add(Client("b"), "1", "of another client")
    assert ledger.get(Way(Neighbour("a")), "1") == "of the neighbour"
    assert ledger.remove(Client("a"), "1") == "of the client"
    assert ledger.get(Way(Neighbour("a")), "1") == "of the neighbour"
    assert ledger.statistics() == LedgerStatistics(parties=2, entries=2)
    ledger.validate()


def test_the_unknown_is_not_there() -> None:
    """Withdrawing something twice would go unnoticed."""
    ledger: Ledger[str] = Ledger()
    ledger.add(Client("a"), "1", "x")
    assert ledger.remove(Client("a"), "2") is None
    assert ledger.remove(Client("b"), "1") is None
    assert ledger.remove(Client("a"), "1") == "x"
    assert ledger.remove(Client("a"), "1") is None
    assert len(ledger) == 0
    assert Client("a") not in ledger
    ledger.validate()


def test_all_of_an_origin_are_removed_together() -> None:
    """A client that is gone would go on being served."""
    ledger: Ledger[str] = Ledger()
    for identity in "123":
        ledger.add(Client("a"), identity, identity)
    ledger.add(Client("b"), "1", "stays")
    assert ledger.remove_all(Client("a")) == {"1": "1", "2": "2", "3": "3"}
    assert ledger.remove_all(Client("a")) == {}
    assert list(ledger) == [(Client("b"), "1", "stays")]
    ledger.validate()


def test_a_full_ledger_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger could fill the memory of a server."""
    monkeypatch.setattr(module, "LEDGER_ENTRIES_MAX", 2)
    ledger: Ledger[int] = Ledger()
    ledger.add(Client("a"), "1", 1)
    ledger.add(Client("a"), "2", 2)
    refusal = refused(ledger.add, Client("b"), "1", 3)
    assert refusal is not None
    assert isinstance(refusal.error, LimitError)
    assert (refusal.reason, refusal.error.limit) == (Reason.FULL, "LEDGER_ENTRIES_MAX")
    assert len(ledger) == 2
    ledger.validate()


def test_ways_are_found_by_their_neighbour() -> None:
    """When a link goes, what came over it for some home would stay."""
    ledger: Ledger[str] = Ledger()
    link = Neighbour("a")
    way = ledger.way(link, "h")
    ledger.add(way, "1", "x")
    ledger.add(Way(link), "1", "y")
    ledger.add(Way(Neighbour("b"), "h"), "1", "z")
    assert set(ledger.ways(link)) == {Way(link), Way(link, "h")}
    assert ledger.way(link, "h") is way
    ledger.remove(way, "1")
    ledger.remove_all(Way(link))
    assert not ledger.ways(link)
    ledger.validate()

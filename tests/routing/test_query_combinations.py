"""`QueryRouter`: combinations of answers that fail as a whole, and those that are refused."""

import msgspec
import pytest

from contrada.errors import MissingRequirementError
from contrada.model import Notification
from contrada.model.domains.values import ABSENT_KEY
from contrada.routing import accumulators, aggregation
from contrada.routing.aggregation import Aggregate, AggregateKind, Combination, Partial
from contrada.routing.router_messages import Answer, Effect, NotifyClient, Received, Send
from tests.routing.test_query_router import (
    ANN,
    ANSWERED,
    BOB,
    COUNTED,
    EVE,
    FAILED,
    NORTH,
    WARM,
    answer,
    ask,
    effects_of,
    report,
    router_with_sources,
)


def count_of_rooms(*rooms: str) -> bytes:
    """Returns the count of items of these sources."""
    partial = Partial(COUNTED)
    partial.add_all(Notification({"source": each}) for each in rooms)
    return partial.to_bytes()


@pytest.mark.parametrize("limit", ["GROUPS_MAX", "PARTIAL_BYTES_MAX"])
def test_a_combination_beyond_a_limit_fails_as_a_whole(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of failed sources would be in the result, or an error end the server."""
    router = router_with_sources((ANN, "a"), (EVE, "e"), (NORTH, "n"))
    router.handle(Received(BOB, ask(WARM, combination=COUNTED, window=0)), 0)
    first = answer(
        reports=(report("a", ANSWERED, 2),), partial=count_of_rooms("1", "2"), is_last=True
    )
    assert router.handle(Received(ANN, first), 0) == []
    monkeypatch.setattr(aggregation, limit, {"GROUPS_MAX": 3, "PARTIAL_BYTES_MAX": 20}[limit])
    more = answer(
        reports=(report("e", ANSWERED, 2),), partial=count_of_rooms("3", "4"), is_last=True
    )
    effects = router.handle(Received(EVE, more), 0)
    if limit == "PARTIAL_BYTES_MAX":
        effects += router.handle(Received(NORTH, answer(is_last=True)), 0)
    (last,) = [each.message for each in effects if isinstance(each, NotifyClient)]
    assert isinstance(last, Answer)
    assert last.is_last
    assert last.partial == b""
    assert {(each.name, each.state, each.count) for each in last.reports} >= {
        ("a", FAILED, 0),
        ("e", FAILED, 0),
    }
    assert all(limit in each.reason for each in last.reports)
    assert not router.statistics().questions
    router.validate()


@pytest.mark.parametrize(
    ("kind", "packed", "reason"),
    [
        (AggregateKind.COUNT, "1", "cannot read"),
        (AggregateKind.COUNT, 2**63 - 1, "COUNT_MAX"),
        (AggregateKind.SUM, (0, 2**63 - 1, 0, 0, 0, b"", b""), "COUNT_MAX"),
    ],
)
def test_an_impossible_partial_result_fails_its_query_alone(
    kind: AggregateKind, packed: object, reason: str
) -> None:
    """A server could not read it, or not encode its answer, and would hold the query for ever."""
    combination = Combination((Aggregate(kind, "room"),))
    router = router_with_sources((ANN, "a"), (EVE, "e"), links="")
    effects_of(router, BOB, ask(WARM, combination=combination, window=0))
    partial = msgspec.msgpack.encode([(ABSENT_KEY, [packed])])
    effects: list[Effect] = []
    for client, name in ((ANN, "a"), (EVE, "e")):
        said = answer(reports=(report(name, ANSWERED, 1),), partial=partial, is_last=True)
        effects += effects_of(router, client, said)
    (last,) = [each.message for each in effects if isinstance(each, NotifyClient)]
    assert isinstance(last, Answer)
    assert [(each.name, each.state) for each in last.reports] == [("a", FAILED), ("e", FAILED)]
    assert all(reason in each.reason for each in last.reports)
    assert not router.statistics().questions


def test_an_impossible_combination_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without the library of sketches would fail at a neighbour's query."""
    error = MissingRequirementError("datasketches", "install it")

    def missing() -> None:
        raise error

    monkeypatch.setattr(accumulators, "_datasketches", missing)
    distinct = Combination((Aggregate(AggregateKind.DISTINCT, "room"),))
    router = router_with_sources((ANN, "a"))
    effects = router.handle(Received(NORTH, ask(WARM, combination=distinct, window=0)), 0)
    (sent,) = [each.message for each in effects if isinstance(each, Send)]
    assert isinstance(sent, Answer)
    assert [each.state for each in sent.reports] == [FAILED]
    assert sent.is_last

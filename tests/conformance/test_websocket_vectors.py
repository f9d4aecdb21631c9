"""Holds `websocket.json`, by which clients in other languages are tested."""

import json

from contrada.model import Notification
from tests.conformance_vectors import FILE, page, values_of

VECTORS = json.loads(FILE.read_text("utf-8"))


def test_the_vectors_are_those_of_a_broker() -> None:
    """Clients would be tested by messages that no broker sends: run `make vectors`."""
    assert FILE.read_text("utf-8") == page()


def test_the_values_are_read_as_they_are_written() -> None:
    """A client that reads the vectors would send other values than Python."""
    for row in VECTORS["values"]:
        found = Notification.from_json(row["json"])
        assert found.to_json() == row["json"], row["name"]
        assert values_of(found) == row["values"], row["name"]
        assert found.body.hex() == row["body"], row["name"]


def test_the_vectors_have_failures_and_all_requests() -> None:
    """A client would be tested by requests that succeed only."""
    kinds = {each["request"]["type"] for each in VECTORS["exchanges"]}
    assert kinds >= {"subscribe", "unsubscribe", "publish", "ack", "nack", "extend"}
    assert {each["answer"]["type"] for each in VECTORS["exchanges"]} == {"ack", "error"}
    assert {each["type"] for each in VECTORS["deliveries"]} == {"event", "match"}

"""The conformance vectors of `/ws`, which are made by a broker and run by clients of any language.

    python -m tests.conformance_vectors

writes `tests/conformance/websocket.json`:

- `values`: notifications, each with the kind and the text of its values and the hex of its body
- `exchanges`: requests on one WebSocket, in order, each with its answer
- `deliveries`: the other messages of the broker, by subscription and position; their envelopes are
  replaced by one that is the same in each run
"""

import asyncio
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from websockets.asyncio.client import connect

from contrada.model import Notification
from contrada.model.algebra.nested_objects import time_text
from contrada.model.algebra.notification import Envelope
from tests.integrations.http.conftest import serving

FILE: Final = Path(__file__).with_name("conformance") / "websocket.json"

ENVELOPE: Final = Envelope("p.1", "p", 1, 1_795_167_000_000_123)

NOTIFICATIONS: Final = {
    "integers": Notification({"small": -1, "safe": 2**53 - 1, "beyond": 2**53 + 1}),
    "the ends of 64 bits": Notification({"least": -(2**63), "most": 2**63 - 1}),
    "doubles": Notification({"half": 0.5, "tiny": 5e-324, "large": 1e300, "tenth": 0.1}),
    "numbers that JSON does not have": Notification(
        {"nan": float("nan"), "most": float("inf"), "least": float("-inf")}
    ),
    "texts": Notification(
        {"empty": "", "digits": "12345678901234567890", "\u00e9": '"\\\u2028\U0001f600'}
    ),
    "truth values and null": Notification({"yes": True, "no": False, "none": None}),
    "bytes": Notification({"empty": b"", "some": bytes([0, 127, 128, 255])}),
    "times": Notification(
        {
            "whole": datetime(2026, 11, 20, 9, 30, tzinfo=UTC),
            "exact": datetime(2026, 11, 20, 9, 30, 0, 1, tzinfo=UTC),
            "before 1970": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            "first": datetime(1, 1, 1, tzinfo=UTC),
            "last": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        }
    ),
    "several values": Notification({"mixed": (None, 1, "a", b"\x01"), "__proto__": 1}),
    "a body": Notification({"n": 1}, body=b"\x00\xff", content_type="a/b"),
    "an envelope": Notification({"n": 1}, envelope=ENVELOPE),
    "a lifetime and a priority": Notification(
        {"n": 1}, envelope=Envelope(ttl_us=60_000_000, priority=9, delivery="best-effort")
    ),
}

REQUESTS: Final[tuple[dict[str, Any], ...]] = (
    {"type": "publish", "id": "", "notifications": []},
    {"type": "subscribe", "id": "s1", "filter": "n > 0", "form": "notification"},
    {"type": "subscribe", "id": "s1", "filter": "n > 0", "form": "notification"},
    {"type": "subscribe", "id": "s2", "filter": "n >", "form": "notification"},
    {"type": "subscribe", "id": "s2", "filter": "n > 0", "dialect": "x", "form": "notification"},
    {"type": "subscribe", "id": "s2", "filter": "n = 1 -> n = 2", "form": "notification"},
    {"type": "subscribe", "id": "s3", "filter": "n > 0", "durable": "desk", "prefetch": 2}
    | {"form": "notification"},
    *(
        {"type": "publish", "id": f"p{n}", "notifications": [json.loads(each.to_json())]}
        for n, each in enumerate((Notification({"n": 1, "big": 2**53 + 1}), Notification({"n": 2})))
    ),
    {"type": "publish", "id": "p3", "notifications": [{"contrada": 1, "filter": "n > 0"}]},
    {"type": "extend", "id": "s3", "positions": [1, 2]},
    {"type": "ack", "id": "s3", "positions": [1]},
    {"type": "ack", "id": "s3", "position": 1},
    {"type": "nack", "id": "s3", "positions": [2], "delay_s": 3600},
    {"type": "nack", "id": "s3", "positions": [9]},
    {"type": "ack", "id": "s1", "positions": [1]},
    {"type": "unsubscribe", "id": "s1"},
    {"type": "unsubscribe", "id": "s1"},
    {"type": "dance", "id": "d"},
)


def shown(value: Any) -> list[str]:
    """Returns the kind of a value and its text."""
    match value:
        case None:
            return ["null", ""]
        case bool():
            return ["truth", str(value).lower()]
        case int():
            return ["integer", str(value)]
        case float():
            return ["double", repr(value)]
        case bytes():
            return ["bytes", value.hex()]
        case datetime():
            return ["time", time_text(value)]
    return ["text", value]


def values_of(of: Notification) -> dict[str, list[list[str]]]:
    """Returns the values of each attribute, of which several are in the broker's order."""
    return {
        name: [shown(each) for each in (values if isinstance(values, tuple) else (values,))]
        for name, values in of.items()
    }


def fixed(found: Any) -> Any:
    """Returns a message with the envelope of `an envelope` in the place of its own."""
    if isinstance(found, dict):
        own = {"id": "p.1", "publisher": "p", "sequence": 1, "time_us": ENVELOPE.time_us}
        return {name: own if name == "envelope" else fixed(each) for name, each in found.items()}
    return [*map(fixed, found)] if isinstance(found, list) else found


async def vectors() -> dict[str, Any]:
    """Returns the content of the file, as a broker makes it now."""
    exchanges: list[Any] = []
    deliveries: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        async with serving(Path(folder) / "events.db", durable=True) as it:
            address = it.gateway.address.replace("http://", "ws://") + "/ws"
            async with connect(address) as socket:
                for request in REQUESTS:
                    # A record is settled after it was received.
                    while request["type"] == "extend" and len(deliveries) < DELIVERIES:
                        deliveries.append(fixed(json.loads(await socket.recv())))
                    await socket.send(json.dumps(request))
                    found = json.loads(await socket.recv())
                    while found["type"] not in ("ack", "error"):
                        deliveries.append(fixed(found))
                        found = json.loads(await socket.recv())
                    exchanges.append({"request": request, "answer": found})
    values = [
        {"name": name, "json": each.to_json(), "values": values_of(each), "body": each.body.hex()}
        for name, each in NOTIFICATIONS.items()
    ]
    deliveries.sort(key=lambda each: (each["id"], each.get("position", 0), json.dumps(each)))
    return {"values": values, "exchanges": exchanges, "deliveries": deliveries}


DELIVERIES: Final = 5
"""Two events, a match and two records."""


def page() -> str:
    """Returns the text of the file."""
    return json.dumps(asyncio.run(vectors()), indent=1, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    FILE.write_text(page(), "utf-8")

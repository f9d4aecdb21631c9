"""Type checkers check predicates against the type, and infer received objects."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

CASES = """
from dataclasses import dataclass
from typing import Protocol

import msgspec

import contrada as ct


@dataclass
class StockQuote(ct.Obvent, name="typing.StockQuote"):
    company: str
    price: float


@ct.obvent(name="typing.Tick")
class Tick(msgspec.Struct):
    price: float


class Priced(Protocol):
    price: float


@dataclass
class Undecorated:
    price: float


class Plain:
    price: float = 1.0


async def predicates(service: ct.Service) -> None:
    service.query(StockQuote, lambda q: q.price < 100)
    service.query(StockQuote, lambda q: q.pric < 100)  # error
    service.query(StockQuote, lambda q, e: q.price < 100 and e.publisher == "x")
    service.query(StockQuote, lambda q, e: q.pric < 100)  # error
    service.query(StockQuote, "price < 100")
    async with service.subscribe(StockQuote) as quotes:
        await quotes.update(lambda q: q.price < 100)
        await quotes.update(lambda q: q.pric < 100)  # error
        await quotes.update(lambda q, e: q.price < 100 and e.publisher == "x")
        await quotes.update(lambda q, e: q.pric < 100)  # error
        await quotes.update(StockQuote, lambda q: q.price < 100)
        await quotes.update(StockQuote, lambda q: q.pric < 100)  # error
        await quotes.update(StockQuote, "price < 100")
    ct.ObventPattern((StockQuote, lambda q: q.price < 100), Tick)
    ct.ObventPattern((StockQuote, lambda q: q.pric < 100), Tick)  # error
    ct.ObventPattern(StockQuote, (Tick, lambda tick: tick.company == "x"))  # error
    ct.ObventPattern(StockQuote, Tick, (Tick, lambda tick: tick.company == "x"))  # error
    ct.ObventPattern((StockQuote, "price < 100"), Tick, Tick)
    four = ct.ObventPattern((StockQuote, lambda q: q.price < 100), Tick, Tick, StockQuote)
    async with service.subscribe(four) as longer:
        (await anext(longer)).obvents[3].company.upper()
        (await anext(longer)).obvents[3].size  # error


async def cases(service: ct.Service) -> None:
    service.subscribe(StockQuote, lambda q: 80 < q.price < 100 and "Telco" in q.company)
    service.subscribe(StockQuote, lambda q: q.pric < 100)  # error
    service.subscribe(StockQuote, lambda q: q.price.upper() == "A")  # error
    service.subscribe(Tick, lambda tick: tick.price < 1)
    service.subscribe(Tick, lambda tick: tick.company == "x")  # error
    service.subscribe(ct.Structural[Priced](), lambda it: it.price < 1)
    service.subscribe(ct.Structural[Priced](), lambda it: it.company == "x")  # error
    async with service.subscribe(StockQuote, lambda q: q.price < 1) as quotes:
        async for quote in quotes:
            quote.price.hex()
            quote.amount  # error
    async with service.subscribe(StockQuote, durable="all") as kept:
        async for each in kept:
            each.item.company.upper()
            each.company  # error
    async with service.subscribe(ct.Structural[tuple[str, float]]()) as tuples:
        company, price = await anext(tuples)
        company.upper() + price.hex()
        price.upper()  # error
    pattern = ct.ObventPattern(StockQuote, Tick, by="price")
    async with service.subscribe(pattern) as matches:
        first, second = (await anext(matches)).obvents
        first.company.upper()
        second.company  # error
    await service.publish(StockQuote("Telco", 1.0))
    await service.publish(Tick(1.0))
    await service.publish(ct.Tuple("Telco", 1.0))
    await service.publish(Undecorated(1.0))  # published by its fields
    await service.publish(Plain())  # error
    ct.Handle(service, StockQuote, lambda q: print(q.price), lambda q: q.price > 0)
    async with service.subscribe("price < 3") as notifications:
        notification = await anext(notifications)
        notification.body.hex()
        (notification.number("price") * 2).hex()
        notification.text("symbol").upper()
        notification.time("at").isoformat() + str(not notification.boolean("urgent"))
        notification.number("price").upper()  # error
        notification["price"] * 2  # error


def blocking(service: ct.SyncService) -> None:
    service.query(StockQuote, lambda q: q.pric < 100)  # error
    service.subscribe(StockQuote).update(lambda q: q.pric < 100)  # error
    service.publish(Undecorated(1.0))
    service.publish(Plain())  # error
    with service.subscribe(StockQuote, lambda q: q.price < 1) as quotes:
        for quote in quotes:
            quote.company.upper()
            quote.amount  # error
"""

WANTED = {number for number, line in enumerate(CASES.splitlines(), 1) if line.endswith("# error")}


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    path = tmp_path / "cases.py"
    path.write_text(CASES)
    return path


@pytest.mark.slow
def test_mypy_checks_predicates(cases: Path) -> None:
    """A misspelt field would be discovered when nothing arrives."""
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(cases.parent), str(cases)],
        cwd=REPOSITORY,
        env={**os.environ, "MYPYPATH": str(REPOSITORY / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    found = {int(it) for it in re.findall(r"cases\.py:(\d+): error", ran.stdout)}
    assert found == WANTED, ran.stdout + ran.stderr


@pytest.mark.slow
def test_pyright_checks_predicates(cases: Path) -> None:
    """Editors with pyright would accept mistakes."""
    settings = {"include": [str(cases)], "extraPaths": [str(REPOSITORY / "src")]}
    pyright = Path(sys.executable).with_name("pyright")
    (cases.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    ran = subprocess.run(
        [pyright, "--outputjson", "--pythonpath", sys.executable, str(cases)],
        cwd=cases.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    told = json.loads(ran.stdout)["generalDiagnostics"]
    errors = [it for it in told if it["severity"] == "error"]
    assert {it["range"]["start"]["line"] + 1 for it in errors} == WANTED, errors

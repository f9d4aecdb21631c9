"""`contrada.connect` and its kin at the top of the package."""

import subprocess
import sys

import pytest

import contrada as ct
from contrada.net.client.tcp_service import TcpService
from contrada.service.embedded_service import EmbeddedService
from tests.asynchronous import on_loop


def test_importing_the_package_loads_no_broker_and_no_client() -> None:
    """An embedded service would wait for modules that it does not use."""
    probe = "import sys, contrada.net; print(*(m for m in sys.modules if 'contrada.net.' in m))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=True)
    assert not done.stdout.strip()


def test_the_address_selects_the_service() -> None:
    """A program would use an embedded service in place of its broker."""
    assert isinstance(ct.connect(), EmbeddedService)
    assert isinstance(ct.connect("contrada://127.0.0.1"), TcpService)
    with pytest.raises(ct.errors.AddressError):
        ct.connect("127.0.0.1")
    with pytest.raises(ct.errors.AddressError):
        ct.connect_sync("")


@on_loop
async def test_the_example_of_the_readme_works(broker_address: str) -> None:
    """The first thing that a person tries would not work."""
    for address in (None, broker_address):
        async with ct.connect(address) as service:
            subscription = service.subscribe("change < 0 and class >* 'finance/'")
            async with subscription as events:
                await service.publish({"class": "finance/stock", "symbol": "DIS", "change": -4.0})
                async for notification in events:
                    assert notification["symbol"] == "DIS"
                    break


def test_the_blocking_face_reaches_a_broker(broker_address: str) -> None:
    """Code that does not await could use only the embedded service."""
    with (
        ct.connect_sync(broker_address, publisher="desk") as service,
        service.subscribe("blocking = 1") as events,
    ):
        service.publish_batch([{"blocking": 1, "n": n} for n in range(3)])
        assert [events.next(timeout_s=10)["n"] for _ in range(3)] == [0, 1, 2]
        assert service.statistics().published == 3


def test_importing_the_package_starts_nothing() -> None:
    """A program that only matches would load event loops, sockets or Spark."""
    code = (
        "import sys, contrada\n"
        "print([m for m in ('asyncio', 'contrada.net', 'pyspark', 'click') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_names_that_are_not_there_are_an_error() -> None:
    """A typing error would be imported as something."""
    with pytest.raises(AttributeError, match="conect"):
        ct.conect  # noqa: B018

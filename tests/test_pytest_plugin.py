"""The pytest plugin: its fixtures in projects of their own, and how little it loads."""

import asyncio
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import contrada as ct
from contrada.delivery.memory_store import MemoryStore
from contrada.errors import InvalidValueError
from contrada.service.service_thread import open_loops
from pytest_contrada import moved_clock
from pytest_contrada.moved_clock import MovedClock
from tests.asynchronous import on_loop

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[1] / "docs" / "testing.md"


def run(pytester: pytest.Pytester, code: str, **counts: int) -> pytest.RunResult:
    """Runs the tests of a project that uses the plugin."""
    pytester.makepyfile(code)
    done = pytester.runpytest_inprocess("-p", "pytest_contrada", "-p", "no:cacheprovider")
    done.assert_outcomes(**counts)
    return done


def test_each_test_has_a_service_of_its_own(pytester: pytest.Pytester) -> None:
    """A subscription of one test would get the notifications of the next, or never end."""
    run(
        pytester,
        """
        import pytest
        from contrada.errors import ServiceClosedError
        seen = []

        @pytest.mark.parametrize("price", [1, 2])
        def test_one(contrada_service, price):
            seen.append(contrada_service)
            prices = contrada_service.subscribe("price > 0").open()
            contrada_service.publish({"price": price})
            assert prices.next(timeout_s=60)["price"] == price

        def test_they_ended():
            assert seen[0] is not seen[1]
            for each in seen:
                with pytest.raises(ServiceClosedError):
                    each.publish({"price": 3})
        """,
        passed=3,
    )


def test_a_broker_has_clients_over_its_address(pytester: pytest.Pytester) -> None:
    """A test of a program that connects to an address would need a broker started by hand."""
    run(
        pytester,
        """
        import asyncio
        import pytest
        import contrada as ct
        addresses = []

        def test_blocking(contrada_broker):
            addresses.append(contrada_broker.address)
            ward = ct.connect_sync(contrada_broker.address)
            with contrada_broker.connect() as desk, ward, ward.subscribe("price > 0") as prices:
                desk.publish({"price": 1})
                assert prices.next(timeout_s=60)["price"] == 1

        def test_asynchronous(contrada_broker):
            async def main():
                async with ct.connect(contrada_broker.address) as desk:
                    async with desk.subscribe("price > 0") as prices:
                        await desk.publish({"price": 1})
                        assert (await prices.next(5))["price"] == 1
            asyncio.run(main())

        def test_it_ended():
            with pytest.raises(ct.errors.ConnectionFailedError):
                ct.connect_sync(addresses[0], reconnect=False).open()
        """,
        passed=3,
    )


def test_certified_records_have_a_store(pytester: pytest.Pytester) -> None:
    """A test of certified delivery would need a store made by hand, or could not choose one."""
    run(
        pytester,
        """
        import pytest

        def test_in_memory(contrada_service, contrada_broker):
            contrada_service.publish({"price": 1}, delivery="certified")
            with contrada_broker.connect() as client:
                client.publish({"price": 1}, delivery="certified")

        class TestOnDisk:
            @pytest.fixture
            def contrada_store(self, tmp_path):
                return tmp_path / "records.db"

            def test_on_disk(self, contrada_service, contrada_store):
                contrada_service.publish({"price": 1}, delivery="certified")
                assert contrada_store.exists()
        """,
        passed=2,
    )


MOVED = """
    import pytest
    import contrada as ct

    def waited(durable, clock, seconds):
        "Whether a record is there only after so many seconds."
        with pytest.raises(TimeoutError):
            durable.next(timeout_s=0.01)
        clock.advance(0.9 * seconds)  # Time also passes by itself, for long on a busy machine.
        with pytest.raises(TimeoutError):
            durable.next(timeout_s=0.01)
        clock.advance(0.1 * seconds + 0.5)
        return durable.next(timeout_s=60)

    @pytest.fixture(params=["embedded", "broker"])
    def service(request):
        if request.param == "embedded":
            yield request.getfixturevalue("contrada_service")
        else:
            with request.getfixturevalue("contrada_broker").connect() as client:
                yield client

    def test_a_delay(service, contrada_clock):
        with service.subscribe("n > 0", durable="work") as work:
            service.publish({"n": 1}, delivery="reliable")
            record = work.next(timeout_s=60)
            work.nack(record.position, delay_s=60)
            assert waited(work, contrada_clock, 60).attempt == 2

    def test_an_acknowledgement_that_is_late(service, contrada_clock):
        late = {"retention": ct.Retention(acknowledge_s=600), "auto_acknowledge": False}
        with service.subscribe("n > 0", durable="work", **late) as hung:
            service.publish({"n": 1}, delivery="reliable")
            hung.next(timeout_s=60)
            with service.subscribe("n > 0", durable="work", **late) as other:
                assert waited(other, contrada_clock, 600).attempt == 2

    def test_a_back_off(service, contrada_clock):
        again = ct.Retention(backoff_s=30)
        with service.subscribe("n > 0", durable="work", retention=again) as work:
            service.publish({"n": 1}, delivery="reliable")
            work.nack(work.next(timeout_s=60).position)
            assert waited(work, contrada_clock, 30).attempt == 2

    def test_expiry(service, contrada_clock):
        with service.subscribe("n > 0") as numbers:
            service.publish({"n": 1}, ttl_s=60)
            service.publish({"n": 2})
            contrada_clock.advance(61)
            assert numbers.next(timeout_s=60)["n"] == 2

    def test_stamps(service, contrada_clock):
        first = service.publish({"n": 1}).time_us
        contrada_clock.advance(3_600)
        passed_us = service.publish({"n": 1}).time_us - first
        assert 3_600e6 <= passed_us < 3_660e6
"""


def test_delays_expiry_and_timeouts_follow_the_clock(pytester: pytest.Pytester) -> None:
    """A test of a work queue would sleep, or a moved clock would break the connection."""
    before_s = time.time()
    run(pytester, MOVED, passed=10)
    assert abs(time.time_ns() / 1e9 - time.time()) < 1, "the real clock is back"
    assert time.time() - before_s < 60


def test_the_examples_of_the_page_pass(pytester: pytest.Pytester) -> None:
    """A reader's first test would fail."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    run(pytester, "\n".join(blocks), passed=len(blocks))


@on_loop
async def test_the_clock_moves_while_a_loop_runs() -> None:
    """An asynchronous test would have to sleep, or its timers would be called out of order."""
    with MovedClock() as clock:
        loop = asyncio.get_running_loop()
        called: list[int] = []
        for delay_s in (90, 5, 30):
            loop.call_later(delay_s, called.append, delay_s)
        service = ct.connect(store=MemoryStore())
        async with service, service.subscribe("n > 0", durable="work") as work:
            await service.publish({"n": 1}, delivery="reliable")
            await work.nack((await work.next(5)).position, delay_s=20)
            await clock.sleep(30.5)
            assert (await work.next(5)).attempt == 2
        assert called == [5, 30]
        assert clock.moved_s == 30.5


def clocks_s() -> tuple[float, ...]:
    """The seconds of all clocks that are moved."""
    loop = asyncio.new_event_loop()
    loop.close()
    return time.time_ns() / 1e9, time.monotonic_ns() / 1e9, loop.time()


def test_all_clocks_move_together_and_return() -> None:
    """Stamps and time-outs would disagree, or later tests see the clock of this one."""
    real = (time.time_ns, time.monotonic_ns, asyncio.BaseEventLoop.time)
    with MovedClock() as clock:
        before_s = clocks_s()
        clock.advance(10_000)
        assert clock.moved_s == 10_000
        for before, after in zip(before_s, clocks_s(), strict=True):
            assert 10_000 <= after - before < 11_000
    assert real == (time.time_ns, time.monotonic_ns, asyncio.BaseEventLoop.time)


def test_a_blocked_loop_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test would hang in its clock, with no line that names the fault."""
    monkeypatch.setattr(moved_clock, "TURN_WAIT_S", 0.01)
    goes_on = threading.Event()
    others = open_loops()
    with ct.connect_sync(), MovedClock() as clock:
        (loop,) = {*open_loops()}.difference(others)
        loop.call_soon_threadsafe(goes_on.wait)
        with pytest.raises(TimeoutError, match=r"took no turn within 0\.01 s: it is blocked"):
            clock.advance(1)
        goes_on.set()


def test_a_loop_that_was_closed_meanwhile_has_no_turn() -> None:
    """A service that ends in another thread would be an error of the clock."""
    loop = asyncio.new_event_loop()
    loop.close()
    moved_clock._await_turn(loop)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 1e9, "1"])
def test_moves_are_bounded(seconds: float) -> None:
    """A clock would go back, or a test never end."""
    with MovedClock() as clock, pytest.raises(InvalidValueError, match="seconds from 0 to 604800"):
        clock.advance(seconds)


def test_the_plugin_loads_nothing_before_it_is_used() -> None:
    """Every run of pytest in an environment with Contrada would begin later."""
    probe = (
        "import pytest, sys; before = set(sys.modules); import pytest_contrada;"
        "print({each.split('.')[0] for each in set(sys.modules) - before})"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "{'pytest_contrada'}"

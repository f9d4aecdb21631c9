"""`contrada store` beside a broker: backed up under load, killed, restored."""

import json
import threading
from pathlib import Path

import pytest

from contrada import connect_sync
from contrada.delivery.store import RESTORED_GAP
from contrada.errors import ConnectionFailedError, ContradaError
from tests.net.processes import contrada, serving

FILTERS = "n >= 0"


@pytest.mark.slow
def test_a_broker_is_backed_up_under_load_and_restored(tmp_path: Path) -> None:
    """Notifications confirmed before a backup would be lost with the disk, or doubled unnoticed."""
    store, copy, restored = (str(tmp_path / name) for name in ("a.db", "a.copy", "b.db"))
    confirmed: list[int] = []
    with serving("--port", "0", "--store", store) as (broker, address):
        with connect_sync(address) as reader, reader.subscribe(FILTERS, durable="d") as first:
            with connect_sync(address) as publisher:
                for number in range(5):
                    publisher.publish({"n": number}, delivery="certified fifo")
            done = [item.position for item, _ in zip(first, range(3), strict=False)]

        def load() -> None:
            try:
                with connect_sync(address, reconnect=False) as publisher:
                    for number in range(5, 100_000):
                        publisher.publish({"n": number}, delivery="certified fifo")
                        confirmed.append(number)
            except (ConnectionFailedError, ContradaError):
                return  # The broker was killed.

        thread = threading.Thread(target=load)
        thread.start()
        while len(confirmed) < 50:
            thread.join(0.01)
        before = len(confirmed)
        run = contrada("store", "backup", store, copy)
        assert run.returncode == 0, run.stderr
        after = len(confirmed)
        broker.kill()
        thread.join()
    for command in (("check", copy), ("restore", copy, restored), ("check", restored)):
        run = contrada("store", *command)
        assert run.returncode == 0, run.stderr
        assert "; whole" in run.stdout
    run = contrada("store", "restore", copy, "memory:")
    assert (run.returncode, run.stdout) == (2, "")
    assert "PLACE: found 'memory:', expected where a store stays" in run.stderr
    run = contrada("store", "restore", copy, restored)
    assert run.returncode == 2
    assert "it is not written over" in run.stderr
    shown = json.loads(contrada("store", "show", restored, "--json").stdout)
    (log,) = [each for each in shown["logs"] if each["name"] == "d"]
    assert log["first"] >= done[-1], "what was acknowledged does not come again"
    with (
        serving("--port", "0", "--store", restored) as (_, address),
        connect_sync(address) as service,
    ):
        service.publish({"n": 10**6}, delivery="certified fifo")
        found = []
        with service.subscribe(FILTERS, durable="d") as second:
            for item in second:
                found.append((int(str(item.item["n"])), item.position))
                if found[-1][0] == 10**6:
                    break
    *numbers, last = [number for number, _ in found]
    assert numbers == [*range(numbers[0], numbers[-1] + 1)], "each once, in order"
    assert numbers[0] == log["first"] - 1, "what was not acknowledged at the backup comes"
    assert 5 + before <= numbers[-1] + 1 <= 5 + after + 1, "all that was confirmed before it"
    assert [position for _, position in found[:-1]] == [number + 1 for number in numbers]
    assert last == 10**6
    assert found[-1][1] > RESTORED_GAP, "no position is that of another record"

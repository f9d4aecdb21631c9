"""`contrada serve`: its limits, and the statistics that it prints at its end."""

from pathlib import Path

import pytest

import contrada as ct
from contrada.cli.serve import _summary
from contrada.net.broker.broker import BrokerStatistics
from tests.net.processes import serving


def test_the_last_line_has_all_counters() -> None:
    """An operator would not see losses, refusals and undecided relations."""
    counts = BrokerStatistics(
        connections=0,
        connections_total=3,
        links=0,
        subscriptions=0,
        published=7,
        matched=5,
        dropped={"queue full": 2},
        refused={},
        held_bytes=0,
        safe_answers={"covers": 1, "meets": 4},
        operator_failures={"longer": 6},
    )
    assert _summary(counts, as_json=False) == (
        "3 connections, 7 notifications published, 5 matches; dropped: 2 queue full; "
        "refused: none; safe answers: 1 covers, 4 meets; failed operators: 6 longer"
    )


@pytest.mark.slow
def test_limits_of_the_file_and_the_environment_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator's limits would be read, and the broker would run with the defaults."""
    file = tmp_path / "contrada.toml"
    file.write_text("[limits.service]\nsubscriptions_max = 1\n", "utf-8")
    monkeypatch.setenv("CONTRADA_LIMITS_BROKER_CONNECTIONS_MAX", "2")
    with (
        serving("--config", str(file), "--port", "0", "--store", "memory:") as (_, address),
        ct.connect_sync(address) as first,
        ct.connect_sync(address),
    ):
        first.subscribe("a = 1").open()
        with pytest.raises(ct.errors.ServiceError, match="subscriptions_max"):
            first.subscribe("b = 1").open()
        third = ct.connect_sync(address, reconnect=False)
        with pytest.raises(ct.errors.ConnectionFailedError) as refused:
            third.open()
        assert refused.value.fault == "full"


@pytest.mark.slow
def test_a_wrong_limit_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slip in a variable would be ignored, or end in a traceback."""
    monkeypatch.setenv("CONTRADA_LIMITS_BROKER_CONECTIONS_MAX", "2")
    with serving("--port", "0") as (process, _):
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert len(errors.splitlines()) == 1
    assert "conections_max" in errors.lower()

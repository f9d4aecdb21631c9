"""The subscriptions of a pipeline, from files and from a broker's clients."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from contrada.connections import connect_sync
from contrada.errors import InputError
from contrada.integrations.spark.pipeline import pipeline_subscriptions
from contrada.integrations.spark.pipeline.pipeline_subscriptions import (
    SubscriptionsOrigin,
    load_origins,
    read_patterns,
)
from contrada.model import Filter, FilterSet, Pattern
from contrada.model.codec import to_msgpack
from tests.net.processes import serving

MANY = [Filter(f"n = {n} and s = 'x{n}'") for n in range(3_000)]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A broker with a store."""
    with serving("--port", "0", "--store", str(tmp_path / "store.db")) as (_, address):
        yield address


def test_a_broker_of_many_filters(address: str) -> None:
    """Only the first hundred would be read, and no long ones."""
    origin = [SubscriptionsOrigin(broker=address)]
    either = FilterSet(["a = 1", "b in (" + ", ".join(f"'{n}'" for n in range(500)) + ")"])
    with connect_sync(address) as service, service.subscribe(FilterSet(MANY)):
        with service.subscribe(either, durable="either"), service.subscribe("a = 1"):
            asked = load_origins(origin)
            assert asked.filters == {
                **{str(each): each for each in (*MANY, Filter("a = 1"))},
                "either": either,
            }
            assert load_origins(origin, asked) is asked, "the same is not decoded again"
        changed = load_origins(origin, asked)
        assert changed.digest != asked.digest
        assert changed.filters.keys() == asked.filters.keys() - {"a = 1"}


def test_a_renamed_file_of_rules_is_a_change(tmp_path: Path) -> None:
    """A stream would keep the former names, and rules that went from one file to another."""
    origins = [SubscriptionsOrigin(tmp_path, "eventbridge")]
    (tmp_path / "late.json").write_text('{"a": ["x"]}')
    asked = load_origins(origins)
    (tmp_path / "late.json").rename(tmp_path / "lost.json")
    renamed = load_origins(origins, asked)
    assert [*asked.filters, *renamed.filters] == ["late", "lost"]
    rule = (tmp_path / "lost.json").read_text()
    (tmp_path / "lost.json").write_text(rule + "\n" + rule)
    (tmp_path / "lost.jsonl").write_text("")
    joined = load_origins(origins, renamed)
    (tmp_path / "lost.json").write_text(rule + "\n")
    (tmp_path / "lost.jsonl").write_text(rule)
    assert load_origins(origins, joined).digest != joined.digest


def test_lines_of_patterns_end_where_lines_of_filters_do(tmp_path: Path) -> None:
    """A text with a line separator would be cut, and a mark of Windows would be part of a name."""
    file = tmp_path / "patterns"
    file.write_text("\ufeff# two steps\nab: s = 'x\u2028y' -> n = 1\n", encoding="utf-8")
    assert read_patterns(file) == {"ab": Pattern("s = 'x\u2028y' -> n = 1")}


def test_one_name_for_two_subscriptions_is_refused(address: str, tmp_path: Path) -> None:
    """A match would count for another subscription."""
    file = tmp_path / "subs"
    origins = [
        SubscriptionsOrigin(file=file),
        SubscriptionsOrigin(broker=address),
        SubscriptionsOrigin(broker=address),
    ]
    with connect_sync(address) as service, service.subscribe("a = 1", durable="one"):
        file.write_text("one: a = 1\n")
        assert load_origins(origins).filters == {"one": Filter("a = 1")}
        file.write_text("one: a = 2\n")
        with pytest.raises(InputError, match="'one' again"):
            load_origins(origins)


def test_a_repeated_name_has_the_last_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription that was recreated meanwhile would keep its former filters."""
    first, last = to_msgpack(Filter("a = 1")), to_msgpack(Filter("a = 2"))
    told = [("one", [first]), ("one", [last]), ("", [first]), ("", [last, first])]

    async def held(_: object) -> list[tuple[str, list[bytes]]]:
        return told

    monkeypatch.setattr(pipeline_subscriptions, "read_subscriptions", held)
    monkeypatch.setattr(pipeline_subscriptions, "TcpService", _Nobody)
    asked = load_origins([SubscriptionsOrigin(broker="contrada://127.0.0.1:1")])
    assert asked.filters == {
        "one": Filter("a = 2"),
        "a = 1": Filter("a = 1"),
        "a = 2": Filter("a = 2"),
    }


class _Nobody:
    """A service that is never called."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        pass

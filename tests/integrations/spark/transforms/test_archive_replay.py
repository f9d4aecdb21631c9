"""`replay`: an archive in order and with its own timing, into a service."""

import asyncio
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import contrada as ct
from contrada.errors import InputError
from contrada.integrations.spark import replay
from contrada.integrations.spark.transforms.archive_replay import Pace, Replayed, _Replay
from contrada.model import Envelope, Notification, to_msgpack

START = datetime(2026, 3, 1, tzinfo=UTC)
START_US = int(START.timestamp() * 1_000_000)
COUNT = 1_200


def stamped(number: int) -> Notification:
    """Returns the number-th notification: three a second, of two publishers."""
    time_us = START_US + number // 3 * 1_000_000
    envelope = Envelope(f"id{number}", f"p{number % 2}", number, time_us)
    return Notification({"number": number}).with_envelope(envelope)


@pytest.fixture(scope="module")
def archive(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Unordered files of notifications, one unreadable, and one without a time."""
    packed = [to_msgpack(stamped(number * 7 % COUNT)) for number in range(COUNT)]
    packed += [b"\x00", to_msgpack(Notification({"number": -1}))]
    path = tmp_path_factory.mktemp("archive") / "day"
    frame = spark.createDataFrame([(bytearray(each),) for each in packed], "notification binary")
    frame.repartition(4).write.parquet(str(path))
    return spark.read.parquet(str(path))


def replayed(
    archive: DataFrame, path: Path, count: int, **options: object
) -> tuple[Replayed, list[Notification]]:
    """Returns the notifications that a subscriber of an embedded service received."""

    async def run() -> tuple[Replayed, list[Notification]]:
        async with (
            ct.connect(publisher="again", store=path / "kept.db") as service,
            service.subscribe("everything") as subscription,
        ):
            task = asyncio.create_task(replay(archive, service, speed=math.inf, **options))  # type: ignore[arg-type]
            got = [await subscription.next(60.0) for _ in range(count)]
            return await task, got

    return asyncio.run(run())


def test_a_replay_is_in_the_order_of_times(archive: DataFrame, tmp_path: Path) -> None:
    """Order by time, publisher and number would not hold over partitions."""
    steps: list[tuple[int, int]] = []
    told, got = replayed(archive, tmp_path, COUNT, told=lambda *step: steps.append(step))
    assert told == Replayed(COUNT, bad=2)
    expected = sorted(
        (stamped(number) for number in range(COUNT)),
        key=lambda each: (each.envelope.time_us, each.envelope.publisher, each.envelope.sequence),
    )
    assert [each["number"] for each in got] == [each["number"] for each in expected]
    assert [each.envelope for each in got] == [each.envelope for each in expected]
    assert steps[-1] == (COUNT, expected[-1].envelope.time_us)
    assert len(steps) > 1


def test_bounds_certified_and_anew(archive: DataFrame, tmp_path: Path) -> None:
    """Bounds, delivery or new stamps would be ignored."""
    since, until = START + timedelta(seconds=10), START + timedelta(seconds=20)
    options = {"since": since, "until": until, "delivery": "certified", "anew": True}
    told, got = replayed(archive, tmp_path, 30, **options)
    assert told.published == len(got) == 30
    assert {each["number"] for each in got} == set(range(30, 60))
    assert {each.envelope.delivery for each in got} == {"certified"}
    assert {each.envelope.publisher for each in got} == {"again"}
    assert all(each.envelope.at_us > START_US + 10**9 for each in got)


class Clock:
    """A clock that advances only in sleeps and publications."""

    def __init__(self) -> None:
        self.s = 100.0
        self.sent: list[tuple[float, int]] = []

    async def sleep(self, seconds: float) -> None:
        self.s += seconds

    async def publish_batch(self, items: list[Notification], *, delivery: str | None) -> int:
        self.sent += [(self.s, int(str(each["number"]))) for each in items]
        self.s += 0.1
        return len(items)


@pytest.mark.parametrize(("speed", "apart_s"), [(1.0, 1.0), (4.0, 0.25), (0.5, 2.0)])
def test_each_is_published_when_it_is_due(speed: float, apart_s: float) -> None:
    """The time of publishing would add up to a growing delay."""
    clock = Clock()
    run = _Replay(clock, Pace(speed, lambda: clock.s), None, False, None)  # type: ignore[arg-type]
    rows = [(stamped(n).envelope.time_us, to_msgpack(stamped(n))) for n in range(9)]
    asyncio.run(run.publish(rows, clock.sleep))
    assert [number for _, number in clock.sent] == list(range(9))
    began = clock.sent[0][0]
    assert [s - began for s, _ in clock.sent] == pytest.approx(
        [0.0, 0.0, 0.0, *[apart_s] * 3, *[2 * apart_s] * 3], abs=1e-6
    )


def test_cancelling_ends_it(archive: DataFrame) -> None:
    """A waiting replay would not end with its task."""

    async def run() -> int:
        async with ct.connect() as service, service.subscribe("everything") as subscription:
            task = asyncio.create_task(replay(archive, service, speed=1e-6))
            await subscription.next()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return service.statistics().published

    assert asyncio.run(run()) < COUNT


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"speed": 0.0}, "speed"), ({"since": datetime(2026, 1, 1)}, "bound")],  # noqa: DTZ001
)
def test_wrong_arguments_are_refused(
    archive: DataFrame, options: dict[str, object], reason: str
) -> None:
    """A wrong speed or bound would fail after some publications."""

    async def run() -> None:
        async with ct.connect() as service:
            await replay(archive, service, **options)  # type: ignore[arg-type]

    with pytest.raises(InputError, match=reason):
        asyncio.run(run())


def test_a_wide_frame_is_refused(spark: SparkSession) -> None:
    """The missing column of envelopes would not be named."""

    async def run() -> None:
        async with ct.connect() as service:
            await replay(spark.range(3), service)

    with pytest.raises(InputError, match="notification"):
        asyncio.run(run())

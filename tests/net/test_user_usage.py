"""Quotas at brokers: what is over is refused, or delayed, by whatever connection it comes."""

import asyncio
import re
import sys
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

import contrada as ct
from contrada.connections import connect
from contrada.delivery.delivery_messages import CloseLog, ReadLog
from contrada.delivery.retention import BYTES_MAX, Retention
from contrada.errors import ConnectionFailedError, FrameError, NotPermittedError, QuotaError
from contrada.model import FilterSet
from contrada.net.broker import user_usage
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.user_usage import UserUsage, UserUsages, kept_by_user
from contrada.net.broker.users import RightsSettings, Users, UserSettings
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.durable_messages import encode_durable
from contrada.net.wire.endpoint import ConnectOptions
from contrada.net.wire.tokens import new_token
from contrada.service.durable_reader import IN_MEMORY
from contrada.service.security.principals import OVER_QUOTA, Principal, Quotas
from tests.asynchronous import on_loop, until
from tests.homes import host_of

TOKEN, RECORD = new_token("desk")
ROOT, ROOT_RECORD = new_token("root")
READING: dict[str, Any] = {"best-effort": {}, "reliable": {"reliable": True}}


def users(**quotas: int) -> Users:
    desk = UserSettings(RECORD, publish=True, subscribe=True, quota=Quotas(**quotas))
    root = UserSettings(ROOT_RECORD, publish=True, subscribe=True, inspect=True)
    return Users.of("here", {"desk": desk, "root": root})


async def shown(broker: Broker) -> dict[str, tuple[int, int]]:
    """Returns the use and the limit of each quota, as a user with `inspect` sees them."""
    async with TcpService(broker.address, options=ConnectOptions(token=ROOT)) as service:
        counts = await service.broker_statistics()
    used, limits = counts["quota_used"], counts["quota_limits"]
    return {name: (used[name], limits[name]) for name in limits}


# --- refused --------------------------------------------------------------------------------------


@on_loop
async def test_a_connection_beyond_the_quota_is_refused_and_others_stay() -> None:
    """A user could take all connections of a broker, or lose its own by one more."""
    async with Broker(port=0, users=users(connections=2)) as broker:
        async with connect(broker.address, token=TOKEN) as first:
            async with connect(broker.address, token=TOKEN, reconnect=False):
                with pytest.raises(ConnectionFailedError) as refused:
                    async with connect(broker.address, token=TOKEN, reconnect=False):
                        pass
                assert refused.value.fault == OVER_QUOTA
                assert "the quota connections of the user 'desk' is 2" in refused.value.reason
                assert "contrada user quota desk --connections N" in refused.value.reason
                assert await shown(broker) == {"desk connections": (2, 2)}
                await first.publish({"a": 1})
            await until(lambda: len(broker._connections) == 1)
            async with connect(broker.address, token=TOKEN, reconnect=False):
                pass
        assert broker.refused[OVER_QUOTA] == 1


@on_loop
async def test_subscriptions_count_over_all_connections(tmp_path: Path) -> None:
    """A user could subscribe without bound by connecting again, or never subscribe again."""
    async with (
        Broker(port=0, users=users(subscriptions=3), store=tmp_path / "a.db") as broker,
        connect(broker.address, token=TOKEN) as one,
        connect(broker.address, token=TOKEN) as other,
    ):
        async with (
            one.subscribe("a = 1"),
            other.subscribe(ct.Pattern("a = 1 -> a = 2")),
            other.subscribe("a any", durable="desk"),
        ):
            for service in (one, other):
                for refused in (
                    service.subscribe("b = 1"),
                    service.subscribe(ct.Pattern("b = 1 -> b = 2")),
                    service.subscribe("b = 1", durable="desk/b"),
                ):
                    with pytest.raises(QuotaError, match="the quota subscriptions of the user"):
                        await refused.open()
            assert await shown(broker) == {"desk subscriptions": (3, 3)}
        await until(lambda: broker.statistics().quota_used["desk subscriptions"] == 0)
        async with one.subscribe("b = 1"):
            pass
        assert not any(name.startswith("desk/") for name in broker.logs.host.server.logs.names())


@on_loop
async def test_subscriptions_that_are_being_entered_count() -> None:
    """A user could exceed the quota by several connections that subscribe at once."""
    wide = " or ".join(f"n = {at} and m any" for at in range(500))
    async with (
        Broker(port=0, users=users(subscriptions=2)) as broker,
        connect(broker.address, token=TOKEN) as one,
        connect(broker.address, token=TOKEN) as other,
    ):
        opening = [service.subscribe(wide).open() for service in (one, other) * 2]
        found = await asyncio.gather(*opening, return_exceptions=True)
        assert sorted(type(each).__name__ for each in found).count("QuotaError") == 2
        assert (await shown(broker))["desk subscriptions"] == (2, 2)


@on_loop
async def test_subscriptions_in_memory_count_until_they_end() -> None:
    """A user could fill the memory of a broker by connecting again and again."""
    async with Broker(port=0, users=users(subscriptions=2)) as broker:
        async with connect(broker.address, token=TOKEN) as service:
            async with service.subscribe("a any", reliable=True) as events:
                (connection,) = broker._connections
                connection.evict()
                await until(lambda: events.statistics().reconnects == 1)
                assert (await shown(broker))["desk subscriptions"] == (1, 2), "it is one still"
            logs = cast(TcpService, service)._durable
            assert logs is not None
            for at in range(2):
                name, label = f"{IN_MEMORY}-{at}", f"r{at}"
                opened = ReadLog(name, label, FilterSet("a any"), is_durable=False)
                await logs._ask(encode_durable(opened))
                await logs._ask(encode_durable(CloseLog(name, label)))
            with pytest.raises(QuotaError, match="the quota subscriptions of the user"):
                await service.subscribe("a any", reliable=True).open()
        assert (await shown(broker))["desk subscriptions"] == (2, 2)
        for name in list(broker.logs._expiry):
            broker.logs._expire(name)
        assert (await shown(broker))["desk subscriptions"] == (0, 2)
        assert broker.logs.host.server.logs.names() == []


@on_loop
async def test_durable_subscriptions_and_their_room_are_bounded_over_restarts(
    tmp_path: Path,
) -> None:
    """A user could fill the disk of a broker, or get a new quota by a restart."""
    quotas = {"durable_subscriptions": 3, "kept_bytes": 1_000}
    small = ct.Retention(bytes_max=400)
    for is_first in (True, False):
        async with (
            Broker(port=0, users=users(**quotas), store=tmp_path / "a.db") as broker,
            connect(broker.address, token=TOKEN) as service,
        ):
            if is_first:
                async with service.subscribe("a any", durable="desk", retention=small):
                    pass
                async with service.subscribe("a any", durable="desk/rest"):
                    terms = broker.logs.host.server.logs.terms("desk/rest")
                    assert terms is not None
                    assert terms.retention.bytes_max == 600, "what is left"
            async with service.subscribe("a any", durable="desk"):
                pass  # An existing one takes nothing.
            told: tuple[dict[str, Any], ...] = ({"retention": small}, {})
            for options in told:
                more = service.subscribe("a any", durable="desk/more", **options)
                with pytest.raises(QuotaError, match="the quota kept_bytes of the user 'desk' is"):
                    await more.open()
            dead = ct.Retention(bytes_max=1, attempts_max=1, dead_letter="desk/dead")
            with pytest.raises(QuotaError, match=r"durable_subscriptions .* makes it 4"):
                await service.subscribe("a any", durable="desk/more", retention=dead).open()
            found = await shown(broker)
            assert found["desk durable_subscriptions"] == (2, 3)
            assert found["desk kept_bytes"] == (1_000, 1_000)
            wide = service.subscribe("a any", reliable=True, retention=Retention())
            with pytest.raises(QuotaError, match="kept_bytes"):
                await wide.open()
            async with service.subscribe("a any", reliable=True):
                pass  # In memory it has a room of its own.


@on_loop
async def test_names_with_many_parts_cost_no_more(tmp_path: Path) -> None:
    """A user could hold the loop for a second at each request of others, by a hundred parts."""
    said = [Principal("desk", durable=("a", "b/c")), Principal("root", durable=("*", "b"))]
    async with connect(store=tmp_path / "a.db") as service:
        logs = host_of(service).server.logs

        async def calls(name: str) -> int:
            for at in range(20):
                await service.subscribe("a any", durable=f"{name}/{at}").open()
            noted: list[str] = []
            sys.setprofile(lambda _, event, __: noted.append(event))
            try:
                found = kept_by_user(said, logs)
            finally:
                sys.setprofile(None)
            assert found["desk"][0] == 20
            for each in logs.names():
                await service.unsubscribe(each)
            return noted.count("c_call")

        assert await calls("b/c" + "/d" * 110) == await calls("b/c") > 20


@on_loop
async def test_dead_letters_take_room_too(tmp_path: Path) -> None:
    """A user could keep a GiB more for each subscription, as dead letters."""
    async with (
        Broker(port=0, users=users(kept_bytes=1_000), store=tmp_path / "a.db") as broker,
        connect(broker.address, token=TOKEN) as service,
    ):
        dead = ct.Retention(bytes_max=400, attempts_max=1, dead_letter="desk/dead")
        with pytest.raises(QuotaError, match=f"makes it {BYTES_MAX + 400}"):
            await service.subscribe("a any", durable="desk", retention=dead).open()
        own = ct.Retention(bytes_max=600)
        async with (
            service.subscribe("dead = true", durable="desk/dead", retention=own),
            service.subscribe("a any", durable="desk", retention=dead),
        ):
            assert await shown(broker) == {"desk kept_bytes": (1_000, 1_000)}
        other = ct.Retention(bytes_max=1, attempts_max=1, dead_letter="desk/other")
        with pytest.raises(QuotaError, match="kept_bytes"):
            await service.subscribe("a any", reliable=True, retention=other).open()
        secret = ct.Retention(bytes_max=1, dead_letter=f"{IN_MEMORY}-dead")
        with pytest.raises(NotPermittedError, match=IN_MEMORY):
            await service.subscribe("a any", reliable=True, retention=secret).open()


@on_loop
async def test_changed_quotas_are_in_force_at_once_and_end_nothing() -> None:
    """A lowered quota would end connections, or be in force only after a restart."""
    async with (
        Broker(port=0, users=users(connections=5)) as broker,
        connect(broker.address, token=TOKEN) as service,
        service.subscribe("a any") as events,
    ):
        broker.change_users(users(connections=0, subscriptions=0))
        with pytest.raises(QuotaError, match="subscriptions of the user 'desk' is 0"):
            await service.subscribe("b any").open()
        await service.publish({"a": 1})
        assert (await anext(events))["a"] == 1
        assert await shown(broker) == {"desk connections": (1, 0), "desk subscriptions": (1, 0)}
        broker.change_users(users())
        async with service.subscribe("b any"):
            assert await shown(broker) == {}


# --- delayed --------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["best-effort", "reliable"])
@on_loop
async def test_publications_beyond_the_rate_are_delayed_over_all_connections(delivery: str) -> None:
    """A user could publish faster than its rate by several connections; or records be lost."""
    loop = asyncio.get_running_loop()
    async with (
        Broker(port=0, users=users(notifications_per_s=4_000)) as broker,
        connect(broker.address, token=TOKEN) as one,
        connect(broker.address, token=TOKEN) as other,
        connect(broker.address, token=ROOT) as reader,
        reader.subscribe("a any", **READING[delivery]) as events,
    ):
        began_s = loop.time()
        batches = [[{"a": at} for at in range(500)] for _ in range(6)]
        for first, second in zip(batches[::2], batches[1::2], strict=True):
            await asyncio.gather(
                one.publish_batch(first, delivery=delivery),
                other.publish_batch(second, delivery=delivery),
            )
            await one.publish({"a": 500}, delivery=delivery)
        for _ in range(1_100):
            await one.publish({"a": 0}, delivery=delivery)
        found = [(await anext(events))["a"] for _ in range(3 * 1_001 + 1_100)]
        assert sum(each == 500 for each in found) == 3
        # One second's worth is free, and the last one waits only for those before it.
        assert loop.time() - began_s >= (3 * 1_001 + 1_099 - 4_000) / 4_000


@pytest.mark.parametrize("delivery", ["best-effort", "reliable"])
@on_loop
async def test_the_answer_waits_until_earlier_publications_are_paid_for(delivery: str) -> None:
    """A publisher that waits for its answers would not become slow."""
    loop = asyncio.get_running_loop()
    async with (
        Broker(port=0, users=users(notifications_per_s=100)) as broker,
        connect(broker.address, token=TOKEN) as service,
    ):
        began_s = loop.time()
        await service.publish_batch([{"a": 1}] * 130, delivery=delivery)
        await service.publish({"a": 2}, delivery=delivery)
        assert loop.time() - began_s >= 0.3


@pytest.mark.parametrize("delivery", ["best-effort", "reliable"])
@on_loop
async def test_a_publication_too_far_behind_is_refused_in_words(delivery: str) -> None:
    """A publisher would wait for hours, or not learn why, and who can change it."""
    limits = BrokerLimits(rate_wait_s=5.0)
    async with (
        Broker(port=0, users=users(bytes_per_s=1), limits=limits) as broker,
        connect(broker.address, token=TOKEN) as service,
    ):
        await service.publish({"a": "x" * 1_000}, delivery=delivery)
        with pytest.raises(QuotaError) as refused:
            await service.publish({"a": 1}, delivery=delivery)
        for words in ("bytes_per_s of the user 'desk' is 1", "than rate_wait_s = 5", "quota desk"):
            assert words in refused.value.reason
        wait_s = float(re.findall(r"would wait ([\d.]+) s", refused.value.reason)[0])
        assert refused.value.retry_in_s == pytest.approx(wait_s - 5, abs=1.1)
        broker.change_users(users())
        await service.publish({"a": 1}, delivery=delivery)


@on_loop
async def test_a_delayed_publication_delays_nothing_else() -> None:
    """Acknowledgements, credit and other requests of a connection would wait for its rate."""
    limits = BrokerLimits(handover_wait_s=0.0)
    async with (
        Broker(port=0, users=users(notifications_per_s=1), limits=limits) as broker,
        connect(broker.address, token=TOKEN, reconnect=False) as service,
        connect(broker.address, token=ROOT) as other,
    ):
        await service.publish_batch({"a": n} for n in range(20))
        waiting = [asyncio.create_task(service.publish({"a": n})) for n in (1, 2)]
        async with service.subscribe("b any") as events:
            await other.publish({"b": 1})
            assert (await anext(events))["b"] == 1
        assert not any(each.done() for each in waiting)
        await service.aclose()
        await asyncio.gather(*waiting, return_exceptions=True)
        await until(lambda: len(broker._connections) == 1)
        assert broker.dropped[OVER_QUOTA] == 0, "the first one waits for its turn"


@on_loop
async def test_waiting_publications_of_ended_connections_are_dropped_counted() -> None:
    """A user that connects again and again would fill the memory of a broker."""
    limits = BrokerLimits(handover_wait_s=0.0, rate_wait_s=1_000.0)
    async with Broker(port=0, users=users(notifications_per_s=1), limits=limits) as broker:
        for at in range(3):
            async with connect(broker.address, token=TOKEN, reconnect=False) as service:
                sent = [
                    asyncio.create_task(service.publish_batch([{"a": "x" * 9_000}] * 20))
                    for _ in range(8)
                ]
                (peer,) = broker._connections
                ingress = peer._handler._ingress  # type: ignore[union-attr]
                await until(lambda ingress=ingress: len(ingress._waiting) >= 1)  # type: ignore[misc]
            await asyncio.gather(*sent, return_exceptions=True)
            await until(lambda: not broker._connections)
            assert broker._held_bytes < (at + 1) * 700_000, "one frame each"
        assert broker.dropped[OVER_QUOTA] > 0


def test_the_debt_of_a_user_is_paid_by_time_alone() -> None:
    """A user could publish more than its rate over a long time, or never again."""
    now = [100.0]
    quotas = Quotas(notifications_per_s=100, bytes_per_s=1_000)
    usage = UserUsage(Principal("desk", quotas=quotas), lambda: now[0], 30.0, 1_000)
    published = refused = 0
    for step in count():
        now[0] = 100.0 + step / 10
        if step > 1_000:
            break
        try:
            usage.charge(25, 10)
        except QuotaError:
            refused += 1
        else:
            published += 25
    assert 100 * 100 <= published <= 100 * (100 + 30 + 1) + 25
    assert refused
    now[0] += usage.debt_s + 1
    assert usage.charge(1, 1) == 0.0
    assert usage.charge(0, 5_000) == 0.0
    assert usage.charge(1, 1) == pytest.approx(4.01)


def test_a_refusal_names_the_command_that_changes_the_quota() -> None:
    """A user of a group, or one from outside, would be told a command that fails."""
    groups = {"the group": RightsSettings(jwt="Devices", quota=Quotas(subscriptions=0))}
    own = UserSettings(quota=Quotas(connections=0), groups=["the group"])
    users = Users.of("here", {"d'1": own}, groups)
    file_user = UserUsages(lambda: 0.0, 30.0, 1_000).of(users.principals["d'1"])
    with pytest.raises(FrameError, match="""change it: contrada user quota 'd'"'"'1' --connec"""):
        file_user.check_connection()
    outside = UserUsages(lambda: 0.0, 30.0, 1_000).of(users.of_jwt("alice", ("Devices",)))
    for each in (file_user, outside):
        with pytest.raises(QuotaError, match="quota 'the group' --group --subscriptions N"):
            each.check_subscription()


def test_a_reconnected_user_keeps_its_debt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user could pay its debt by connecting again, or many users fill the memory."""
    monkeypatch.setattr(user_usage, "USERS_KEPT_MIN", 10)
    usages = UserUsages(lambda: 100.0, 30.0, 1_000)
    desk = Principal("desk", quotas=Quotas(notifications_per_s=1))
    usages.of(desk).charge(10, 1)
    for at in range(100):
        usages.of(Principal(f"u{at}"))
    assert usages.of(desk).debt_s == pytest.approx(9.0)
    assert len(usages._by_name) <= 30


def test_the_room_without_a_quota_is_as_before() -> None:
    """A default retention would change for users without quotas."""
    assert Retention().bytes_max == BYTES_MAX
    assert Quotas().limits() == {}

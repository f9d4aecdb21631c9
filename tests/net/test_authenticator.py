"""The identity of connections: no impersonation, and no stay beyond the rights.

Brokers on sockets; for a second machine, a transport reports a foreign address.
"""

import asyncio
import signal
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import AF_INET, AF_UNIX, socketpair
from typing import Any
from unittest import mock

import pytest

from contrada.connections import connect, connect_sync
from contrada.errors import ConnectionFailedError, FrameError, NotPermittedError, ServiceError
from contrada.net.broker import users as authenticator
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.broker.users import (
    Authenticator,
    Users,
    UserSettings,
    certificate_names,
    is_private,
)
from contrada.net.wire import tokens
from contrada.net.wire.address import is_loopback, parse_address
from contrada.net.wire.connection import CLIENT, NEIGHBOUR, USUAL_LIVENESS
from contrada.net.wire.frames import HELLO_BYTES_MAX, Failure, Goodbye, Hello, Ping, Reply, encode
from contrada.net.wire.tls import Tls
from contrada.net.wire.tokens import new_token
from contrada.service.security.principals import NOT_PERMITTED
from tests.asynchronous import on_loop, until
from tests.net.networks import are_linked
from tests.net.processes import WAIT_S, serving
from tests.net.requests import publish
from tests.net.test_broker import RawClient
from tests.net.test_tls import Authority
from tests.net.test_tokens import older_record_of

TOKEN, RECORD = new_token("desk")
OTHER, OTHER_RECORD = new_token("desk")
TASK, TASK_RECORD = new_token("task")
OLD = UserSettings(token=older_record_of("old.secret"))
ALL: dict[str, Any] = {"publish": True, "subscribe": True, "publishers": ["*"], "durable": ["*"]}


def users(**said: UserSettings) -> Users:
    return Users.of("here", said)


def desk(**said: Any) -> UserSettings:
    return UserSettings(**{"token": RECORD, **ALL, **said})


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def refusal(address: str, **options: Any) -> str:
    with pytest.raises(ConnectionFailedError) as failed:
        async with connect(address, reconnect=False, **options):
            pass
    return failed.value.reason


class Elsewhere(asyncio.BaseTransport):
    """The transport of a connection from another machine."""

    def __init__(self, peer: str = "192.0.2.7", family: int = AF_INET, **said: Any) -> None:
        self._said = {"peername": (peer, 5), "socket": mock.Mock(family=family), **said}

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As `asyncio.BaseTransport`."""
        return self._said.get(name, default)


# --- by a token -----------------------------------------------------------------------------------


@on_loop
async def test_only_a_token_of_a_user_is_admitted() -> None:
    """A stranger could connect, or under another name."""
    async with Broker(port=0, users=users(desk=desk())) as broker:
        async with connect(broker.address, token=TOKEN) as service:
            await service.publish({"a": 1})
            assert [each.principal.name for each in broker._connections if each.principal] == [
                "desk"
            ]
        for token, words in (
            ("", "the connection has no token: this broker wants a token"),
            (OTHER, "the token is not, or no longer, that of a user"),
            (TOKEN[:-1], "the token is not"),
            (TOKEN + "x", "the token is not"),
            (TASK, "the token is not"),
            ("no token", "the token is not"),
            ("desk." + "x" * 2_000, "the token is not"),
            (RECORD, "the token is not"),
        ):
            assert words in await refusal(broker.address, token=token)
        assert broker.refused[NOT_PERMITTED] == 8
        await until(lambda: not broker._connections)


@on_loop
async def test_without_credentials_one_is_anonymous_if_allowed() -> None:
    """Nobody could be let in without a token; or a wrong one would be as good as none."""
    said = {"anonymous": UserSettings(subscribe="a = 1"), "desk": desk()}
    async with Broker(port=0, users=Users.of("here", said)) as broker:
        async with connect(broker.address) as service:
            async with service.subscribe("a = 1"):
                pass
            with pytest.raises(NotPermittedError, match="'anonymous' may not subscribe to"):
                await service.subscribe("a any").open()
            with pytest.raises(NotPermittedError, match="'anonymous' may not publish"):
                await service.publish({"a": 1})
        assert "the token is not" in await refusal(broker.address, token=OTHER)


@on_loop
async def test_a_client_without_a_name_publishes_below_one_of_its_user() -> None:
    """A user without a publisher name could not publish, or under a foreign name."""
    said = {
        "anonymous": UserSettings(publish=True, subscribe=True),
        "desk": desk(publishers=["quotes"]),
        "task": UserSettings(token=TASK_RECORD, publish=True, publishers=[]),
    }
    async with Broker(port=0, users=Users.of("here", said)) as broker:
        async with connect(broker.address) as service, service.subscribe("a any") as events:
            for _ in range(2):
                assert (await service.publish({"a": 1})).publisher.startswith("anonymous/")
            await service.publish_batch([{"a": 2}])
            await service.publish({"a": 3}, delivery="reliable")
            names = {(await anext(events)).envelope.publisher for _ in range(4)}
            assert len(names) == 1
            async with connect(broker.address, publisher="anonymous") as named:
                assert (await named.publish({"a": 1})).publisher == "anonymous"
        async with connect(broker.address, token=TOKEN) as service:
            assert (await service.publish({"a": 1})).publisher.startswith("quotes/")
        async with connect(broker.address, token=TASK) as service:
            with pytest.raises(NotPermittedError, match="'task' may not publish as"):
                await service.publish({"a": 1})
    async with Broker(port=0) as broker, connect(broker.address) as service:
        assert "/" not in (await service.publish({"a": 1})).publisher


@on_loop
async def test_a_client_reconnected_as_another_user_publishes_under_that_name() -> None:
    """Users added meanwhile would exclude an existing publisher."""
    async with Broker(port=0) as broker, connect(broker.address) as service:
        before = (await service.publish({"a": 1})).publisher
        port = parse_address(broker.address).port
        await broker.stop()
        said = Users.of("here", {"anonymous": UserSettings(publish=True)})
        async with Broker(port=port, users=said):
            after = await service.publish({"a": 1})
            assert after.publisher == f"anonymous/{before}"
            assert after.sequence == 2


@on_loop
async def test_a_token_over_an_open_way_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """An overheard token could be replayed; and eavesdroppers would hear it."""
    keeper = Authenticator(users(desk=desk(), anonymous=UserSettings()))
    looked = mock.Mock()
    monkeypatch.setattr(tokens, "is_token", looked)
    hello = Hello(CLIENT, "", {}, TOKEN)
    for way in (Elsewhere(), Elsewhere("2001:db8::1"), Elsewhere("::ffff:192.0.2.7")):
        with pytest.raises(FrameError, match=r"over TLS .* or from this machine only"):
            keeper.identify(way, hello)
    nameless = Elsewhere(peername="")
    with pytest.raises(FrameError, match="over TLS"):
        keeper.identify(nameless, hello)
    assert not looked.called
    found = keeper.identify(Elsewhere(), Hello(CLIENT))
    assert getattr(found, "name", None) == "anonymous", "who shows nothing may come from there"


@on_loop
async def test_over_tls_a_token_is_accepted_from_anywhere() -> None:
    """Users elsewhere could not connect."""
    keeper = Authenticator(users(desk=desk()))
    for way in (Elsewhere(ssl_object=object()), Elsewhere("127.0.0.2"), Elsewhere("::1")):
        found = keeper.identify(way, Hello(CLIENT, "", {}, TOKEN))
        found = found if not asyncio.iscoroutine(found) else await found
        assert getattr(found, "name", None) == "desk"


def test_ways_on_which_nobody_else_reads() -> None:
    """A token would be taken where it can be overheard, or not where it cannot."""
    for host in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost", "::1%lo"):
        assert is_loopback(host), host
    for host in ("", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example", "x"):
        assert not is_loopback(host), host
    here, there = socketpair()
    assert is_private(Elsewhere(socket=here, peername=""))
    assert is_private(Elsewhere(family=AF_UNIX, peername=""))
    here.close()
    there.close()
    assert not is_private(Elsewhere(socket=None, peername=None))
    for address, is_one in (
        ("contradas://desk.example", True),
        ("contrada://127.0.0.1", True),
        ("contrada://[::1]:5", True),
        ("contrada://localhost", True),
        ("contrada://desk.example", False),
        ("contrada://10.0.0.7", False),
    ):
        assert parse_address(address).is_private is is_one, address


@on_loop
async def test_a_token_is_not_sent_over_an_open_way(caplog: pytest.LogCaptureFixture) -> None:
    """An eavesdropper would get it, whether or not the broker accepts it."""
    for addresses in ("contrada://192.0.2.7", ["contrada://127.0.0.1", "contrada://desk.example"]):
        with pytest.raises(ServiceError, match=r"is sent over TLS \(contradas://\) only"):
            connect(addresses, token=TOKEN)
    caplog.set_level("INFO", "contrada")
    wanted = WantedLink(parse_address("contrada://192.0.2.7"))
    network = Membership("b", neighbours=(wanted,), token=TOKEN)
    with mock.patch("contrada.net.broker.neighbours.dial") as dialled:
        async with Broker(port=0, network=network):
            await until(lambda: "a token is sent over TLS" in caplog.text)
        assert not dialled.called
    assert TOKEN not in caplog.text


@on_loop
async def test_tokens_are_never_sent_back_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A reader of logs or errors could connect as the user."""
    caplog.set_level("DEBUG")
    wanted = (WantedLink(parse_address("contrada://127.0.0.1:1")),)
    membership = Membership("b", neighbours=wanted, token=TOKEN)
    async with Broker(port=0, users=users(desk=desk()), network=membership) as broker:
        async with connect(broker.address, token=TOKEN) as service:
            await service.publish({"a": 1})
            told = repr((service, service.statistics(), membership))
        told += await refusal(broker.address, token=OTHER)
    for token in (TOKEN, OTHER):
        assert token.partition(".")[2] not in caplog.text + told


@on_loop
async def test_a_reachable_broker_requires_users(authority: Authority) -> None:
    """Any machine in reach could do everything, without an explicit choice."""
    with pytest.raises(ServiceError, match=r"other machines .*give it users, or anyone=True"):
        await Broker("0.0.0.0", 0).start()
    with pytest.raises(ServiceError, match="other machines reach it"):
        await Broker("0.0.0.0", 0, tls=authority.tls()).start()
    ways: list[dict[str, Any]] = [
        {"anyone": True},
        {"users": users(desk=desk())},
        {"tls": authority.tls(require=True)},
    ]
    for said in ways:
        async with Broker("0.0.0.0", 0, **said):
            pass
    for host in ("localhost", "127.0.0.2"):
        async with Broker(host, 0):
            pass


# --- by a certificate -----------------------------------------------------------------------------


def client(authority: Authority, *names: str) -> ssl.SSLContext:
    return authority.tls(*names).client_context()


@on_loop
async def test_a_certificate_identifies_a_user(authority: Authority, tmp_path: Path) -> None:
    """One with a certificate would be nobody, or somebody else."""
    said = users(desk=UserSettings(certificate="desk.example", **ALL), task=desk(token=TASK_RECORD))
    async with Broker(port=0, tls=authority.tls(), users=said) as broker:
        mine = client(authority, "desk.example")
        async with connect(broker.address, tls=mine, publisher="desk") as service:
            await service.publish({"a": 1})
            assert [each.principal.name for each in broker._connections if each.principal] == [
                "desk"
            ]
        async with connect(broker.address, tls=mine, token=TASK):
            names = [each.principal.name for each in broker._connections if each.principal]
            assert names == ["task"], "a token says more than a certificate"
        async with connect(broker.address, tls=authority.trusting(), token=TASK):
            pass
        stranger = client(authority, "stranger.example")
        found = await refusal(broker.address, tls=stranger)
        assert "no user has a certificate of 'stranger.example'" in found
        assert "the connection has no token" in await refusal(
            broker.address, tls=authority.trusting()
        )
        forged = Tls(Authority(tmp_path).tls("desk.example").certificate, authority=authority.path)
        await refusal(broker.address, tls=forged.client_context())


def test_names_of_certificates() -> None:
    """The common name would count beside alternative names, which it must not."""
    common = {"subject": ((("commonName", "desk.example"),), (("organizationName", "x"),))}
    assert [*certificate_names(common)] == ["desk.example"]
    both = {**common, "subjectAltName": (("DNS", "a"), ("IP Address", "10.0.0.1"))}
    assert [*certificate_names(both)] == ["a", "ip:10.0.0.1"]
    assert [*certificate_names({})] == []


def test_names_of_other_kinds_are_no_names_of_hosts() -> None:
    """A certificate for another kind of name would identify the owner of a host."""
    for kind, name in (
        ("URI", "uri:desk.example"),
        ("email", "email:desk.example"),
        ("DirName", None),
        ("Registered ID", None),
        ("othername", None),
        ("IP Address", None),
    ):
        found = [*certificate_names({"subjectAltName": ((kind, "desk.example"),)})]
        assert found == ([] if name is None else [name])
    # `ssl` reports one address in several forms.
    addresses = (("IP Address", "2001:DB8:0:0:0:0:0:1\n"), ("IP Address", "2001:db8::1"))
    assert {*certificate_names({"subjectAltName": addresses})} == {"ip:2001:db8::1"}
    for name in ("uri:x", "URI:x", "email:a@x", "ip:10.0.0.1"):
        assert [*certificate_names({"subjectAltName": (("DNS", name),)})] == []
        assert [*certificate_names({"subject": ((("commonName", name),),)})] == []


# --- while connected ------------------------------------------------------------------------------


@on_loop
async def test_a_removed_user_is_disconnected() -> None:
    """A removed or expired user, or one with a new token, would stay connected."""
    gone = [
        users(),
        users(desk=desk(expires=datetime(2020, 1, 1, tzinfo=UTC))),
        users(desk=desk(token=OTHER_RECORD)),
        users(desk=desk(token="", certificate="desk.example")),
    ]
    for now in gone:
        async with Broker(port=0, users=users(desk=desk())) as broker:
            async with connect(broker.address, token=TOKEN, reconnect=False) as service:
                events = service.subscribe("a any")
                await events.open()
                broker.change_users(now)
                with pytest.raises(ConnectionFailedError):
                    await anext(events)
            assert not broker._connections
            words = await refusal(broker.address, token=TOKEN)
            assert "the token is not" in words or "has expired" in words


@on_loop
async def test_two_tokens_are_valid_while_one_is_replaced() -> None:
    """Replacing a token would cut off its clients, or the old one would stay valid for ever."""
    async with (
        Broker(port=0, users=users(desk=desk())) as broker,
        connect(broker.address, token=TOKEN, reconnect=False) as old,
    ):
        (first,) = broker._connections
        broker.change_users(users(desk=desk(token=OTHER_RECORD, old_token=RECORD)))
        await old.publish({"a": 1})
        async with connect(broker.address, token=OTHER, reconnect=False) as new:
            async with connect(broker.address, token=TOKEN, reconnect=False):
                pass
            broker.change_users(users(desk=desk(token=OTHER_RECORD)))
            assert "has another token or certificate" in first.failure
            await new.publish({"a": 2})
        assert "the token is not" in await refusal(broker.address, token=TOKEN)


@pytest.mark.parametrize("older", [False, True])
@on_loop
async def test_an_old_token_ends_at_its_time(older: bool) -> None:
    """The old token would be valid for ever, or its connections would stay."""
    soon = datetime.now(UTC) + timedelta(hours=1)
    record = older_record_of(TOKEN) if older else RECORD
    said = desk(token=OTHER_RECORD, old_token=record, old_token_ends=soon)
    async with (
        Broker(port=0, users=users(desk=said)) as broker,
        connect(broker.address, token=OTHER, reconnect=False) as new,
    ):
        (other,) = broker._connections
        async with connect(broker.address, token=TOKEN, reconnect=False):
            (peer,) = broker._connections - {other}
            later_us = round(soon.timestamp() * 1_000_000)
            with mock.patch.object(authenticator, "wall_clock_us", return_value=later_us):
                for each in (peer, other):
                    broker.check_alive(each)
                assert "or its old token has" in peer.failure
                assert "the token is not" in await refusal(broker.address, token=TOKEN)
            await new.publish({"a": 1})


@on_loop
async def test_an_expired_user_is_disconnected() -> None:
    """The expiry of a user would not affect an open connection."""
    soon = datetime.now(UTC) + timedelta(hours=1)
    async with (
        Broker(port=0, users=users(desk=desk(expires=soon))) as broker,
        connect(broker.address, token=TOKEN, reconnect=False),
    ):
        (peer,) = broker._connections
        broker.check_alive(peer)
        assert not peer.is_closed
        later_us = round(soon.timestamp() * 1_000_000)
        with mock.patch.object(authenticator, "wall_clock_us", return_value=later_us):
            broker.check_alive(peer)
            assert "'desk' has expired" in peer.failure
            await until(lambda: not broker._connections)
            assert "has expired" in await refusal(broker.address, token=TOKEN)


@on_loop
async def test_wider_permissions_keep_the_connection_and_narrower_ones_end_it() -> None:
    """A change of rights would have no effect on connections, or end unrelated ones."""
    first = users(desk=desk(subscribe="a < 5", narrow=True))
    async with (
        Broker(port=0, users=first) as broker,
        connect(broker.address, token=TOKEN) as service,
        service.subscribe("a < 5") as events,
    ):
        (peer,) = broker._connections
        broker.change_users(users(desk=desk(subscribe="a < 7", narrow=True)))
        assert broker.statistics().connections == 1
        await service.publish_batch({"a": n} for n in (9, 6, 4))
        assert (await anext(events))["a"] == 4
        wide = service.subscribe("a any")
        await wide.open()
        broker.change_users(users(desk=desk(subscribe="a < 7", narrow=True)))
        assert broker.statistics().connections == 1, "nothing has changed"
        broker.change_users(users(desk=desk(subscribe="a < 8", narrow=True)))
        assert peer.is_closed, "it was granted less than it wished, and may have more"
        await until(lambda: peer not in broker._connections)
        await until(lambda: broker.statistics().subscriptions == 2)
        await service.publish_batch({"a": n} for n in (9, 7, 3))
        assert [(await anext(wide))["a"] for _ in range(2)] == [7, 3]
        assert (await anext(events))["a"] == 3
        broker.change_users(users(desk=desk(subscribe="a = 1")))
        with pytest.raises(NotPermittedError, match="may not subscribe to"):
            await anext(wide)
        with pytest.raises(NotPermittedError, match="may not subscribe to"):
            await anext(events)


@on_loop
async def test_a_hidden_offer_is_announced_once_it_is_readable() -> None:
    """A follower would miss an offer, or see only its end."""
    said = {"task": desk(token=TASK_RECORD)}
    async with (
        Broker(port=0, users=users(desk=desk(subscribe="a = 1"), **said)) as broker,
        connect(broker.address, token=TASK) as offering,
        connect(broker.address, token=TOKEN) as service,
        offering.advertise("b any"),
        service.advertisements() as offers,
    ):
        assert len(broker._connections) == 2
        broker.change_users(users(desk=desk(subscribe="a = 1 or b = 1"), **said))
        change = await anext(aiter(offers))
        assert "b any" in str(change)


@on_loop
async def test_users_cannot_be_introduced_later() -> None:
    """A broker could seem to check users, and accept all."""
    async with Broker(port=0) as broker:
        with pytest.raises(ServiceError, match="began without users"):
            broker.change_users(users())


@on_loop
async def test_one_that_is_removed_while_his_token_is_checked_stays_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user removed during the check would be admitted; or wait for ever."""
    real = tokens.is_token
    for now in (users(), users(old=desk(token=OTHER_RECORD)), users(old=UserSettings())):
        async with Broker(port=0, users=users(old=OLD)) as broker:
            loop = asyncio.get_running_loop()

            def check(
                token: str,
                record: str,
                broker: Broker = broker,
                now: Users = now,
                loop: asyncio.AbstractEventLoop = loop,
            ) -> bool:
                found = real(token, record)
                asyncio.run_coroutine_threadsafe(permit(broker, now), loop).result(WAIT_S)
                return found

            monkeypatch.setattr(tokens, "is_token", check)
            assert "the token is not" in await refusal(broker.address, token="old.secret")


async def permit(broker: Broker, now: Users) -> None:
    broker.change_users(now)


@on_loop
async def test_a_fault_while_a_token_is_checked_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection would be kept that is nobody's, and never be answered."""
    monkeypatch.setattr(tokens, "is_token", mock.Mock(side_effect=MemoryError))
    async with Broker(port=0, users=users(old=OLD)) as broker:
        assert "a fault of this broker" in await refusal(broker.address, token="old.secret")
        await until(lambda: not broker._connections)


# --- strangers ------------------------------------------------------------------------------------


@on_loop
async def test_nothing_is_done_before_authentication(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames behind a hello would be processed for an unknown user, or fill a broker meanwhile."""
    async with Broker(port=0, users=users(old=OLD)) as broker:
        keeper = broker._authenticator
        assert keeper is not None
        hello = Hello(CLIENT, "", {}, "old.wrong")
        async with keeper._checks[0]._turn:
            stranger = await RawClient.to(broker, hello, publish(1, 0, [b"x"]), Ping(1))
            stranger.write(encode(Ping(2)) * 200_000)  # More than is read ahead.
            await until(lambda: any(each._is_unknown for each in broker._connections))
            await until(lambda: any(each._unread_bytes for each in broker._connections))
            (peer,) = broker._connections
            assert (peer.principal, peer._handler) == (None, None)
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(peer._connection.reader) < 1_000_000, "it is not read on"
        failure = await stranger.hears()
        assert isinstance(failure, Failure), "no hello, no pong"
        assert failure.code == NOT_PERMITTED
        await stranger.leave()
        await until(lambda: not broker._connections)
        assert broker._held_bytes == 0


@pytest.mark.parametrize(
    ("role", "code"), [(NEIGHBOUR, NOT_PERMITTED), ("broker", "role"), ("king", "role")]
)
@on_loop
async def test_a_false_kind_in_hello_is_refused(role: str, code: str) -> None:
    """A client could send frames of brokers, and receive theirs."""
    said = {
        "name": "x",
        "instance": "i",
        "as": "peer",
        "cost": 1,
        **Membership("x").shared_options(),
    }
    mine = users(desk=desk(inspect=True))
    async with Broker(port=0, users=mine, network=Membership("b")) as broker:
        raw = await RawClient.to(broker, Hello(role, "", said, TOKEN))
        failure = await raw.hears()
        assert isinstance(failure, Failure)
        assert failure.code == code
        assert len(broker.neighbours) == 0
        await raw.leave()


@on_loop
async def test_a_client_with_messages_of_brokers_stays_a_client() -> None:
    """The role in a hello could replace the rights of a token."""
    said: dict[str, int | str | bool] = {"name": "x", "as": "parent", "link": True, "inspect": True}
    async with Broker(port=0, users=users(desk=UserSettings(token=RECORD))) as broker:
        raw = await RawClient.to(broker, Hello(CLIENT, "", said, TOKEN))
        assert isinstance(await raw.hears(), Hello)
        raw.say(publish(1, 0, []), Hello(CLIENT, "", {}, TOKEN))
        assert isinstance(await raw.hears(), Reply)
        again = await raw.hears()
        assert isinstance(again, Failure)
        assert again.code == "unexpected"
        await raw.leave()


@on_loop
async def test_only_brokers_that_may_are_linked() -> None:
    """Any machine that knows the address of a broker could join its network."""
    said = users(
        desk=desk(link=True), task=UserSettings(token=TASK_RECORD, publish=True, subscribe=True)
    )
    async with Broker(port=0, users=said, network=Membership("a")) as broker:
        wanted = (WantedLink(parse_address(broker.address)),)
        for token, name in ((TASK, "task"), ("", "b"), (OTHER, "desk"), (TOKEN, "b")):
            network = Membership(name, neighbours=wanted, token=token)
            before = broker.refused[NOT_PERMITTED]
            async with Broker(port=0, network=network):
                await until(lambda: broker.refused[NOT_PERMITTED] > before)  # noqa: B023
                assert not len(broker.neighbours)
        network = Membership("desk", neighbours=wanted, token=TOKEN)
        async with Broker(port=0, network=network) as other:
            await until(lambda: are_linked([broker, other], 1))


@on_loop
async def test_a_hello_is_small_and_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers could hold connections for ever, each with megabytes."""
    async with Broker(port=0, users=users(desk=desk())) as broker:
        large = await RawClient.to(broker, Hello(CLIENT, "", {}, "x" * HELLO_BYTES_MAX))
        failure = await large.hears()
        assert isinstance(failure, Failure)
        assert failure.code == "oversized"
        await large.leave()
        slow = await RawClient.to(broker)
        hello = encode(Hello(CLIENT, "", {}, TOKEN))
        await until(lambda: len(broker._connections) == 1)
        (peer,) = broker._connections
        for at in range(len(hello) - 1):
            slow.write(hello[at : at + 1])
            await until(lambda: len(peer._connection.reader) > at)  # noqa: B023
        monkeypatch.setattr(
            peer._connection, "_began_s", peer.clock() - USUAL_LIVENESS.hello_wait_s
        )
        broker.check_alive(peer)
        failure = await slow.hears()
        assert isinstance(failure, Failure)
        assert failure.code == "no hello"
        await slow.leave()


@on_loop
async def test_an_authenticated_silent_client_is_lost() -> None:
    """A connection of a vanished client would be kept."""
    async with Broker(port=0, users=users(desk=desk())) as broker:
        silent = await RawClient.to(broker, Hello(CLIENT, "", {}, TOKEN))
        assert isinstance(await silent.hears(), Hello)
        (peer,) = broker._connections
        peer._connection._heard_s -= USUAL_LIVENESS.silent_s_max
        broker.check_alive(peer)
        failure = await silent.hears()
        assert isinstance(failure, Failure)
        assert failure.code == "silent"
        await silent.leave()


@on_loop
async def test_strangers_with_wrong_tokens_keep_no_newcomer_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Strangers could stop a broker for its users, above all for those that connect just now."""
    checked: list[str] = []
    is_token = tokens.is_token

    def count(token: str, record: str) -> bool:
        checked.append(token)
        assert not tokens.is_slow(record)
        asyncio.get_running_loop()  # Raises in a thread: the check does not queue for one.
        return is_token(token, record)

    said = users(desk=desk(), task=UserSettings(token=TASK_RECORD, **ALL))
    async with (
        Broker(port=0, users=said) as broker,
        connect(broker.address, token=TOKEN) as service,
        service.subscribe("a any") as events,
    ):
        monkeypatch.setattr(tokens, "is_token", count)
        hellos = (Hello(CLIENT, "", {}, f"task.{n}") for n in range(400))
        flood = [await RawClient.to(broker, each) for each in hellos]
        async with connect(broker.address, token=TASK, reconnect=False):
            pass  # A newcomer, checked in its order: nobody waits.
        for n in range(20):
            await service.publish({"a": n})
            assert (await anext(events))["a"] == n
        await until(lambda: broker.refused[NOT_PERMITTED] == 400)
        assert sorted(checked) == sorted([TASK, *(f"task.{n}" for n in range(400))])
        for each in flood:
            await each.leave()
        await until(lambda: len(broker._connections) == 1)
        assert broker.refused.total() == 400


@on_loop
async def test_a_flood_of_slow_checks_disturbs_no_connected_client() -> None:
    """Strangers could stop a broker for its users, by the name of one with an older record."""
    older = UserSettings(token=older_record_of(OTHER), **ALL)
    limits = BrokerLimits(token_checks_max=5)
    async with (
        Broker(port=0, users=users(task=desk(token=TASK_RECORD), desk=older), limits=limits) as it,
        connect(it.address, token=OTHER) as service,
        service.subscribe("a any") as events,
    ):
        it.change_users(users(task=desk(token=TASK_RECORD), desk=older, old=OLD))
        hellos = (Hello(CLIENT, "", {}, f"old.{n}") for n in range(60))
        flood = [await RawClient.to(it, each) for each in hellos]
        await until(lambda: it.refused["busy"] > 20)
        for n in range(20):
            await service.publish({"a": n})
            assert (await anext(events))["a"] == n
        for token in (OTHER, TASK):
            async with connect(it.address, token=token, reconnect=False):
                pass  # Known already, or with a record of this version.
        for each in flood:
            await each.leave()
        await until(lambda: len(it._connections) == 1)
        assert it.refused.total() == it.refused["busy"] + it.refused[NOT_PERMITTED]


@on_loop
async def test_a_broker_with_tokens_under_way_stops() -> None:
    """One that waits for strangers would not end."""
    async with Broker(port=0, users=users(old=OLD)) as broker:
        keeper = broker._authenticator
        assert keeper is not None
        async with keeper._checks[0]._turn:
            raw = await RawClient.to(broker, Hello(CLIENT, "", {}, "old.wrong"))
            await until(lambda: any(each._is_unknown for each in broker._connections))
            await broker.stop()
            assert isinstance(await raw.hears(), Goodbye)
        await raw.leave()


# --- a real command -------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Any, str, Path]]:
    path = tmp_path / "users.toml"
    path.write_text(f'[users.desk]\ntoken = "{RECORD}"\npublish = true\nsubscribe = "a < 5"\n')
    options = ("--port", "0", "--store", "memory:", "--users", str(path), "-v")
    with serving(*options, folder=tmp_path) as (process, address):
        yield process, address, path


def is_let_in(address: str) -> bool:
    try:
        with connect_sync(address, token=TOKEN, reconnect=False):
            return True
    except ConnectionFailedError:
        return False


@pytest.mark.slow
def test_sighup_changes_permissions(served: tuple[Any, str, Path]) -> None:
    """A broker would have to be stopped to take in, or to throw out, a user."""
    process, address, path = served
    with connect_sync(address, token=TOKEN) as service:
        with service.subscribe("a < 5") as events:
            service.publish({"a": 1})
            assert events.next(WAIT_S)["a"] == 1
            path.write_text(path.read_text() + "narrow = 'no'\n")
            process.send_signal(signal.SIGHUP)
            said = ""
            while "nothing is changed" not in said:
                said += process.stderr.readline()
            assert "users.desk: narrow: found 'no'" in said
            service.publish({"a": 2})
            assert events.next(WAIT_S)["a"] == 2, "what is wrong changes nothing"
            text = path.read_text().replace("narrow = 'no'\n", "").replace("a < 5", "a < 3")
            path.write_text(text)
            process.send_signal(signal.SIGHUP)
            with pytest.raises(NotPermittedError, match="may not subscribe"):
                events.next(WAIT_S)
        path.write_text("[users.task]\n")
        process.send_signal(signal.SIGHUP)
    while is_let_in(address):
        pass
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert TOKEN not in said + errors

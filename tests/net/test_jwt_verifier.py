"""Tokens from outside: only valid ones of the issuer, each with the rights that the users name.

A real issuer on a socket, and real brokers.
"""

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from contrada.connections import connect, connect_sync
from contrada.errors import (
    ConnectionFailedError,
    FrameError,
    InputError,
    NotPermittedError,
    ServiceError,
)
from contrada.net.broker import users as users_module
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.jwt_verifier import JwtIdentity, JwtSettings, JwtVerifier
from contrada.net.broker.users import RightsSettings, Users, UserSettings
from contrada.net.wire.tokens import TOKEN_CHARS_MAX, is_jwt, name_in, new_token
from contrada.service.clock import wall_clock_us
from tests.asynchronous import on_loop, until
from tests.net.issuer import EC_KEY, OTHER_RSA_KEY, RSA_KEY, Issuer, issuing, jwk
from tests.net.processes import serving

GROUPS = {
    "traders": RightsSettings(
        jwt="Trading Desk", publish="a any", subscribe="a any", publishers=["{user}"]
    ),
    "readers": RightsSettings(subscribe="b any"),
}


def users(**said: UserSettings) -> Users:
    return Users.of("users", said, GROUPS)


async def refusal(broker: Broker, token: str) -> str:
    with pytest.raises(ConnectionFailedError) as failed:
        async with connect(broker.address, token=token, reconnect=False):
            pass
    return failed.value.reason


@on_loop
async def test_a_valid_token_gives_the_rights_of_its_user_and_groups() -> None:
    """People of an organization would need secrets of the broker, or have the rights of others."""
    said = users(desk=UserSettings(jwt="alice", groups=["readers"]))
    async with issuing() as it, Broker(port=0, users=said, jwt=it.settings()) as broker:
        async with connect(broker.address, token=it.token("alice")) as service:
            async with service.subscribe("b = 1"):
                pass
            with pytest.raises(NotPermittedError, match="'desk' may not subscribe"):
                await service.subscribe("a = 1").open()
        async with (
            connect(broker.address, token=it.token("alice", "Trading Desk")) as service,
            service.subscribe("a = 1"),
            service.subscribe("b = 1"),
        ):
            pass
        async with connect(broker.address, token=it.token("bob", "x", "Trading Desk")) as service:
            assert (await service.publish({"a": 1})).publisher.startswith("bob/")
            with pytest.raises(NotPermittedError, match="'bob' may not subscribe"):
                await service.subscribe("b = 1").open()
        assert it.asked == {"discovery": 1, "keys": 1}


OF_OTHERS = ("orders", "log", "shop")
"""Names in rights of users, or above them."""


@on_loop
async def test_invalid_tokens_are_refused() -> None:
    """Anybody could make a token; or use one of another service, or an old one."""
    said = users(
        root=UserSettings(publish=True, durable=["orders", "log/eu", "*"], publishers=["shop"]),
        desk=UserSettings(jwt="alice"),
    )
    public = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    async with issuing() as it, Broker(port=0, users=said, jwt=it.settings()) as broker:
        good = it.token()
        header, claims, signature = good.split(".")
        none = base64.urlsafe_b64encode(b'{"alg":"none","kid":"one"}').decode().rstrip("=")
        forged = base64.urlsafe_b64encode(b'{"sub":"alice","exp":99999999999}').decode()
        hmac = f"{_part({'alg': 'HS256', 'kid': 'one', 'typ': 'JWT'})}.{claims}"
        hmac += "." + _signed_by(public, hmac)
        for token, words in (
            (f"{none}.{claims}.", "is not allowed"),
            (hmac, "'HS256' is not allowed"),
            (f"{header}.{forged.rstrip('=')}.{signature}", "Signature verification failed"),
            (it.token(key=OTHER_RSA_KEY), "Signature verification failed"),
            (it.token(name="two", key=OTHER_RSA_KEY), "no known key"),
            (it.token(key=EC_KEY, algorithm="ES256"), "no known key"),
            (it.token(seconds=-60), "expired"),
            (it.token(exp=None), 'missing the "exp" claim'),
            (it.token(nbf=2**40), "not yet valid"),
            (it.token(aud="another"), "Audience doesn't match"),
            (it.token(aud=None), 'missing the "aud" claim'),
            (it.token(iss="https://other.example"), "Invalid issuer"),
            (it.token(iss=None), 'missing the "iss" claim'),
            (it.token(sub=None), "its claim 'sub' is no text"),
            (it.token("bob"), "no user has this subject"),
            (it.token("bob", "traders", "readers"), "no user has this subject"),
            (it.token("root", "Trading Desk"), "a user of this name is identified otherwise"),
            *((it.token(name, "Trading Desk"), "others have names") for name in OF_OTHERS),
            (it.token("x\ud800", "Trading Desk"), "its claim 'sub' is no text"),
            (it.token("bob", "x\ud800"), "no user has this subject"),
            (it.token("a/b", "Trading Desk"), "expected 1 to 100 printable characters"),
            ("eyJ..", "its header is malformed"),
            (f"{header}.e30", "the token is not, or no longer"),
        ):
            assert words in await refusal(broker, token), token
        async with connect(broker.address, token=good):
            pass


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _signed_by(secret: bytes, text: str) -> str:
    """Returns a signature with a public key as the secret, which PyJWT refuses to make."""
    import hmac

    signature = hmac.digest(secret, text.encode(), "sha256")
    return base64.urlsafe_b64encode(signature).decode().rstrip("=")


SOON = BrokerLimits(broker_tick_s=0.01)


def later(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    """Lets the brokers' clock go ahead."""
    passed_us = hours * 3_600_000_000
    monkeypatch.setattr(users_module, "wall_clock_us", lambda: wall_clock_us() + passed_us)


@on_loop
async def test_a_connection_ends_with_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person whom the issuer no longer knows would stay for ever."""
    said = users(desk=UserSettings(jwt="alice", subscribe=True))
    async with issuing() as it:
        broker = Broker(port=0, users=said, jwt=it.settings(), limits=SOON)
        async with broker, connect(broker.address, token=it.token(), reconnect=False) as service:
            later(monkeypatch, 2)
            await until(lambda: service.connection.state == "closed")
            assert "has expired" in service.connection.reason


@on_loop
async def test_a_user_ends_before_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user would stay beyond its own end, as long as its issuer knows it."""
    ends = datetime.now(UTC) + timedelta(hours=1)
    said = users(desk=UserSettings(jwt="alice", subscribe=True, expires=ends))
    async with issuing() as it:
        broker = Broker(port=0, users=said, jwt=it.settings(), limits=SOON)
        token = it.token(seconds=5 * 3_600)
        async with broker, connect(broker.address, token=token, reconnect=False) as service:
            later(monkeypatch, 2)
            await until(lambda: service.connection.state == "closed")


def test_users_of_tokens_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """An issuer with many persons would fill the memory of a broker."""
    monkeypatch.setattr(users_module, "USERS_MAX", 10)
    said = users()
    for at in range(100):
        said.of_jwt(f"u{at}", ("Trading Desk",))
    assert len(said._outside) == 10


@on_loop
async def test_a_client_connects_again_with_its_next_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client would be locked out when its first token expires; or while the next is written."""
    said = users(desk=UserSettings(jwt="alice", subscribe=True, publish=True))
    hours = [1, 1, 0, 3]  # At the beginning, for the first connection, and for the next two.
    async with issuing() as it:

        def token() -> str:
            if not (left := hours.pop(0)):
                raise InputError("desk.token", "No such file")
            return it.token(seconds=left * 3_600)

        reasons: list[str] = []
        async with (
            Broker(port=0, users=said, jwt=it.settings(), limits=SOON) as broker,
            connect(
                broker.address,
                token=token,
                on_connection=lambda state: reasons.append(state.reason),
            ) as service,
            service.subscribe("a any") as events,
        ):
            later(monkeypatch, 2)
            await until(lambda: not hours and service.connection.state == "connected")
            assert "has expired" in " ".join(reasons)
            assert "desk.token: No such file" in reasons
            await service.publish({"a": 1})
            assert (await anext(events))["a"] == 1


@on_loop
async def test_changed_users_change_the_rights_of_tokens() -> None:
    """A right that was withdrawn would stay in force until the token expires."""
    said = users(desk=UserSettings(jwt="alice", subscribe=True))
    async with issuing() as it, Broker(port=0, users=said, jwt=it.settings()) as broker:
        token = it.token("bob", "Trading Desk")
        alice = connect(broker.address, token=it.token("alice"), reconnect=False)
        async with alice, connect(broker.address, token=token, reconnect=False) as bob:
            broker.change_users(Users.of("users", {"desk": said.settings_by_name["desk"]}))
            await until(lambda: bob.connection.state == "closed")
            assert "was removed" in bob.connection.reason
            async with alice.subscribe("a any"):
                pass


@on_loop
async def test_own_tokens_are_valid_beside_those_from_outside() -> None:
    """A broker with an issuer would lose its other users."""
    token, record = new_token("task")
    said = users(task=UserSettings(token=record, publish=True))
    async with issuing() as it, Broker(port=0, users=said, jwt=it.settings()) as broker:
        async with connect(broker.address, token=token) as service:
            await service.publish({"a": 1})
        assert "the token is not" in await refusal(broker, f"{token}x")


@on_loop
@pytest.mark.parametrize(
    ("claim", "claims"),
    [
        ("groups", {"groups": ["x", 1, "Trading Desk"]}),
        ("roles", {"roles": "x Trading y"}),
        ("realm_access.roles", {"realm_access": {"roles": ["Trading Desk", "Trading"]}}),
        ("https://x.example/groups", {"https://x.example/groups": ["Trading Desk", "Trading"]}),
    ],
)
async def test_groups_are_found_in_the_forms_of_issuers(claim: str, claims: dict[str, Any]) -> None:
    """The tokens of a common issuer would give no rights."""
    async with issuing() as it:
        verifier = JwtVerifier(it.settings(groups_claim=claim), asyncio.create_task)
        found = await verifier.verify(it.token("alice", **claims))
        assert {"Trading Desk", "Trading"} & {*found.groups}
        lone: dict[str, Any] = {"realm_access": 3, "groups": {"a": 1}, "roles": 5}
        assert (await verifier.verify(it.token("alice", **lone))).groups == ()


@on_loop
async def test_keys_of_several_algorithms() -> None:
    """An issuer with elliptic curves could not be used, or one without names of keys."""
    async with issuing() as it:
        it.keys = [jwk("one", RSA_KEY), jwk("ec", EC_KEY, use="sig"), jwk("x", RSA_KEY, use="enc")]
        verifier = JwtVerifier(it.settings(), asyncio.create_task)
        for token in (
            it.token(algorithm="PS384"),
            it.token(key=EC_KEY, algorithm="ES256", name="ec"),
            it.token(key=EC_KEY, algorithm="ES256", name=None),
            it.token(name=None),
        ):
            assert (await verifier.verify(token)).subject == "alice"
        with pytest.raises(FrameError, match="no known key"):
            await verifier.verify(it.token(name="x"))
        it.keys.append(jwk("two", OTHER_RSA_KEY))
        verifier = JwtVerifier(it.settings(algorithms=("RS256",)), asyncio.create_task)
        with pytest.raises(FrameError, match="'ES256' is not allowed"):
            await verifier.verify(it.token(key=EC_KEY, algorithm="ES256", name="ec"))
        with pytest.raises(FrameError, match="no known key"):
            await verifier.verify(it.token(name=None))  # Two keys could be meant.


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"issuer": ""}, "jwt.issuer"),
        ({"audience": ""}, "jwt.audience"),
        ({"user_claim": ""}, "jwt.user_claim"),
        ({"algorithms": ("none",)}, "found 'none'"),
        ({"algorithms": ("RS256", "HS256")}, "found 'HS256'"),
        ({"algorithms": ()}, "no algorithm"),
        ({"issuer": "http://login.example"}, "expected https://"),
        ({"issuer": "ftp://127.0.0.1/"}, "expected https://"),
        ({"keys": "http://login.example/keys"}, "expected https://"),
    ],
)
def test_settings_that_let_forged_tokens_in_are_refused(
    settings: dict[str, Any], said: str
) -> None:
    """A mistake in the settings would open the broker, or close it without a word."""
    good: dict[str, Any] = {"issuer": "https://login.example", "audience": "contrada"}
    JwtSettings(**good).check()
    with pytest.raises(InputError, match=said):
        JwtSettings(**{**good, **settings}).check()


def test_a_broker_with_an_issuer_needs_users() -> None:
    """Every person of the issuer would have all rights."""
    with pytest.raises(ServiceError, match="give the broker users"):
        Broker(port=0, jwt=JwtSettings("https://login.example", "contrada"))


def test_wrong_templates_for_tokens_are_found_at_once() -> None:
    """The first person with a token would find them, when the owner is away."""
    wrong = {"traders": RightsSettings(jwt="x", publish="a = '{user}'")}
    with pytest.raises(InputError, match=r"groups.traders: .* expected \{user\} as a value"):
        Users.of("users", {}, wrong)


def test_two_users_cannot_have_one_subject() -> None:
    """One person would have the rights of one of two users by chance."""
    with pytest.raises(InputError, match="found the subject of 'a' again"):
        users(a=UserSettings(jwt="alice"), b=UserSettings(jwt="alice"))


@given(st.text("eyJ.ab{}[]\"'0-_=", max_size=60))
def test_malformed_tokens_are_no_tokens(text: str) -> None:
    """A stranger's token would end the broker's turn with a fault."""
    verifier = JwtVerifier(JwtSettings("https://login.example", "contrada"), _never)
    deep = base64.urlsafe_b64encode(b'{"alg":' + b"[" * 5_000).decode().rstrip("=")
    for token in (f"eyJ{text}", f"{text}.{text}.{text}", f"{deep}.e30.e30"):
        with pytest.raises(FrameError, match=r"is malformed|is not allowed"):
            verifier.verify_at_once(token)


def _never(work: Any) -> Any:
    work.close()
    raise AssertionError("no keys are read for a malformed token")


def test_tokens_from_outside_are_told_from_own_ones() -> None:
    """An own token would be refused by the issuer's rules, or the other way round."""
    token = jwt.encode({"sub": "a"}, RSA_KEY, "RS256")
    assert is_jwt(token)
    assert name_in(token) == ""
    own = new_token("desk")[0]
    assert not is_jwt(own)
    assert not is_jwt(f"{token}.x")
    assert not is_jwt(f"eyJ{'x' * TOKEN_CHARS_MAX}.x.x")


def test_an_identity_is_kept_as_a_credential() -> None:
    """Rights could not be decided anew when the users change."""
    identity = JwtIdentity("alice", ("a b", "ü"), 5)
    assert JwtIdentity.of_credential(identity.to_credential()) == identity
    assert JwtIdentity.of_credential("blake2b$x$y") is None


@pytest.mark.slow
def test_a_broker_process_takes_tokens_of_its_issuer(tmp_path: Path) -> None:
    """The settings would have no effect, or need Python."""
    it = Issuer()
    it.address = "https://login.example"
    (tmp_path / "keys.json").write_text(json.dumps({"keys": it.keys}))
    (tmp_path / "users.toml").write_text(
        '[groups.traders]\njwt = "Trading Desk"\npublish = true\nsubscribe = true\n'
    )
    (tmp_path / "broker.toml").write_text(
        'port = 0\nusers = "users.toml"\n'
        'jwt = { issuer = "https://login.example", audience = "contrada", keys = "keys.json" }\n'
    )
    soon = datetime.now(UTC) + timedelta(hours=1)
    flags = ["--jwt-issuer", it.address, "--jwt-audience", "contrada"]
    flags += ["--jwt-keys", str(tmp_path / "keys.json"), "--users", str(tmp_path / "users.toml")]
    for given_flags in (["--config", str(tmp_path / "broker.toml")], ["--port", "0", *flags]):
        with serving(*given_flags) as (_, address):
            token = it.token("bob", "Trading Desk", exp=int(soon.timestamp()))
            with connect_sync(address, token=token) as service:
                service.publish({"a": 1})

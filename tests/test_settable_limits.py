"""Limits as values: passed to `connect`, read from a file, and from the environment."""

from typing import Any

import pytest

import contrada as ct
from contrada.cli.broker_settings import BrokerSettings, settings_of
from contrada.cli.client_command import connect
from contrada.errors import InputError, LimitError, ServiceError
from contrada.limits import SECTIONS, read_limits
from contrada.net.broker.broker import Broker
from tests.asynchronous import on_loop

PATTERN = ct.Pattern("a = 1 -> b = 1")


def test_limits_are_read_from_a_table_and_from_the_environment() -> None:
    """An operator would have to write Python to change a limit of a broker."""
    table = {"router": {"servers_max": 5, "neighbours_max": 3}, "broker": {"join_wait_s": 1}}
    environ = {
        "CONTRADA_LIMITS_ROUTER_SERVERS_MAX": "16",
        "CONTRADA_LIMITS_CLIENT_CONNECT_WAIT_S": "2.5",
        "CONTRADA_LOG": "x",
    }
    limits = read_limits(table, environ)
    assert limits.router == ct.RouterLimits(servers_max=16, neighbours_max=3)
    assert limits.client == ct.ClientLimits(connect_wait_s=2.5)
    assert limits.broker == ct.BrokerLimits(join_wait_s=1)
    assert limits.service == ct.ServiceLimits()
    assert read_limits({}, {}) == ct.Limits()


@pytest.mark.parametrize(
    ("table", "environ", "message"),
    [
        (
            {"rooter": {}},
            {},
            "limits: found the key rooter .did you mean router.., expected one of: service, router",
        ),
        ({"router": 5}, {}, "limits: router: found 5, expected a table"),
        ({"router": {"x_max": 5}}, {}, "router: found the key x_max, expected .*servers_max"),
        ({"router": {"servers_max": "5"}}, {}, "servers_max: found '5', expected a number from 0"),
        ({"router": {"servers_max": -1}}, {}, "servers_max: found -1, expected a number from 0"),
        ({"router": {"servers_max": True}}, {}, "servers_max: found True"),
        ({"router": {"servers_max": 1.5}}, {}, "servers_max: found 1.5, expected a whole number"),
        ({"broker": {"liveness": 5}}, {}, "liveness: found 5, expected a table"),
        ({"broker": {"liveness": {"x": 5}}}, {}, "broker.liveness: found the key x, expected"),
        ({}, {"ROUTER_SERVERS_MAX": "five"}, "found 'five', expected a number"),
        ({}, {"ROUTER_SERVER_MAX": "5"}, "LIMITS_ROUTER_SERVER_MAX: found the key server_max"),
        ({}, {"ROOTER_SERVERS_MAX": "5"}, "found the key rooter_servers_max, expected one of: ser"),
    ],
)
def test_what_is_no_limit_is_refused(
    table: dict[str, Any], environ: dict[str, str], message: str
) -> None:
    """A misspelt limit would leave the default in force, and nobody would notice."""
    with pytest.raises(InputError, match=message):
        read_limits(table, {f"CONTRADA_LIMITS_{key}": text for key, text in environ.items()})


def test_every_section_has_a_class() -> None:
    """A section could be neither read nor passed."""
    assert set(SECTIONS) == set(ct.Limits.__dataclass_fields__)
    assert read_limits({name: {} for name in SECTIONS}, {}).broker == ct.BrokerLimits()


def test_a_file_of_a_broker_has_limits(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`contrada serve` would run with other limits than its file says."""
    file = tmp_path / "contrada.toml"
    file.write_text("[limits.router]\nservers_max = 7\n[limits.broker]\nconnections_max = 2\n")
    settings = settings_of(file, {})
    assert settings.all_limits().router.servers_max == 7
    monkeypatch.setenv("CONTRADA_LIMITS_ROUTER_SERVERS_MAX", "8")
    assert settings.all_limits().router.servers_max == 8
    assert BrokerSettings().all_limits().broker is None
    file.write_text("[limits.router]\nserver_max = 7\n")
    with pytest.raises(InputError, match="found the key server_max"):
        settings_of(file, {})


@on_loop
async def test_limits_reach_an_embedded_service() -> None:
    """A limit would be accepted by `connect`, and have no effect."""
    limits = ct.Limits(
        service=ct.ServiceLimits(sources_max=1, queue_notifications_max=1),
        router=ct.RouterLimits(registrations_max=2),
        patterns=ct.PatternLimits(patterns_max=1),
    )
    async with (
        ct.connect(limits=limits, publish_wait_s=0) as service,
        service.subscribe("a = 1") as events,
        service.offer("a = 1", lambda _: [], name="s"),
    ):
        await service.publish_batch([{"a": 1}] * 3)
        assert events.statistics().dropped == {"queue full": 2}
        with pytest.raises(LimitError, match="sources_max"):
            await service.offer("a = 1", lambda _: [], name="t").open()
        await service.subscribe("b = 1").open()
        with pytest.raises(LimitError, match="registrations_max"):
            await service.subscribe("c = 1").open()
        await service.subscribe(PATTERN).open()
        with pytest.raises(LimitError, match="patterns_max"):
            await service.subscribe(PATTERN).open()


@on_loop
async def test_limits_reach_a_broker_and_its_client() -> None:
    """A limit of a broker would hold for embedded services alone."""
    core = ct.Limits(
        service=ct.ServiceLimits(subscriptions_max=3), patterns=ct.PatternLimits(patterns_max=1)
    )
    async with Broker(port=0, core_limits=core) as broker:
        limits = ct.Limits(client=ct.ClientLimits(credit_bytes=100_000))
        async with ct.connect(str(broker.address), limits=limits) as service:
            events = await service.subscribe("a = 1")
            assert events.credit_bytes == 100_000  # type: ignore[attr-defined]
            await service.subscribe(PATTERN).open()
            with pytest.raises(ServiceError, match="patterns_max"):
                await service.subscribe(PATTERN).open()
            await service.subscribe("b = 1")
            with pytest.raises(ServiceError, match="subscriptions_max"):
                await service.subscribe("c = 1").open()


@on_loop
async def test_commands_read_limits_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator could set the limits of brokers only."""
    monkeypatch.setenv("CONTRADA_LIMITS_CLIENT_CREDIT_BYTES", "100000")
    async with Broker(port=0) as broker, connect(str(broker.address)) as service:
        events = await service.subscribe("a = 1")
        assert events.credit_bytes == 100_000
    monkeypatch.setenv("CONTRADA_LIMITS_CLIENT_CREDIT_BYTES", "much")
    with pytest.raises(InputError, match="CREDIT_BYTES: found 'much', expected a number"):
        connect("contrada://127.0.0.1:7655")

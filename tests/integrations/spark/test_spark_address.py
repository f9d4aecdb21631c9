"""Addresses of Spark, and their checks; no test here starts Spark."""

import socket
from collections.abc import Iterator

import pytest

from contrada.errors import EngineError, InputError
from contrada.integrations.spark import spark_session


@pytest.fixture
def free_port() -> Iterator[int]:
    """A bound port of this machine without a listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[2]", "local[*, 3]", "local-cluster[2,1,1024]"),
        *("yarn", "k8s://https://a:443", "spark://a:7077", "spark://a:1,b:2"),
    ],
)
def test_masters_that_spark_knows(master: str) -> None:
    """A cluster could not be used."""
    spark_session.check_form(master, None)


@pytest.mark.parametrize("remote", ["sc://a", "sc://a:1/;token=b", "sc://[::1]:1", "local[1]"])
def test_servers_that_spark_knows(remote: str) -> None:
    """A server could not be used."""
    spark_session.check_form(None, remote)


@pytest.mark.parametrize("place", ["foo", "local[", "spark://", "sc://", "http://a", ""])
def test_malformed_addresses_are_refused(place: str) -> None:
    """A typing error would end in a page of Java."""
    with pytest.raises(InputError, match=r"--master: found .*, expected local, "):
        spark_session.check_form(place, None)
    with pytest.raises(InputError, match=r"--remote: found .*, expected sc://host:port"):
        spark_session.check_form(None, place)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("sc://127.0.0.1:{}", "server of Spark Connect"),
        ("sc://127.0.0.1:{}/;user_id=a", "server of Spark Connect"),
        ("spark://127.0.0.1:{}", "master of Spark"),
    ],
)
def test_an_address_without_a_listener_is_refused(
    monkeypatch: pytest.MonkeyPatch, free_port: int, address: str, kind: str
) -> None:
    """A command would hang for minutes, and end in an obscure error."""
    monkeypatch.setattr(spark_session, "check_requirements", lambda **_: None)
    place = address.format(free_port)
    where = {"remote" if place.startswith("sc:") else "master": place}
    with (
        pytest.raises(EngineError, match=f"no {kind} listens at 127.0.0.1:{free_port}: .*refused"),
        spark_session.spark_session(**where),  # type: ignore[arg-type]
    ):
        pass


def test_one_of_several_masters_is_enough(free_port: int) -> None:
    """A cluster with a standby master could not be used."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        spark_session.check_listening(
            f"spark://127.0.0.1:{free_port},127.0.0.1:{server.getsockname()[1]}"
        )


@pytest.mark.parametrize("address", ["local[2]", "yarn", "k8s://https://127.0.0.1:1"])
def test_other_addresses_are_left_to_spark(address: str) -> None:
    """A cluster with another address form could not be used."""
    spark_session.check_listening(address)


def test_a_server_behind_a_proxy_is_left_to_spark(
    monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    """A server that only the proxy reaches could not be used."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:3128")
    monkeypatch.setenv("no_proxy", "elsewhere")
    spark_session.check_listening(f"sc://127.0.0.1:{free_port}")

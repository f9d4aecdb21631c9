"""The brokers of compose.yaml, with the secrets of secrets.sh, as processes of this machine."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from contrada.cli.option_variables import options_of, variables_of
from tests.cli.test_option_variables import commands
from tests.deploy.test_deploy import DEPLOY
from tests.net.test_neighbours import free_ports
from tests.own_operators import CONTRADA

COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
BROKERS = {name: it for name, it in COMPOSE["services"].items() if it["image"] == "contrada"}


def option_variables() -> set[str]:
    """Returns the variables of `contrada serve`."""
    from contrada.cli import main

    (serve,) = (each for path, each in commands(main) if path == "serve")
    return {name for each in options_of(serve) for name in variables_of(each)}


def test_settings_are_options_of_the_command() -> None:
    """A misspelled setting of a container would be ignored: a broker without users, or TLS."""
    assert {*BROKERS} == {"oslo", "riga", "bern"}
    for name, broker in BROKERS.items():
        assert broker["environment"].keys() <= option_variables(), name
        paths = [it for it in broker["environment"].values() if str(it).startswith("/")]
        mounted = [each.split(":")[1] for each in broker["volumes"]]
        assert all(any(path.startswith(f"{it}/") for it in mounted) for path in paths)


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="no docker-compose here")
def test_docker_compose_reads_the_file() -> None:
    """A file with a slip of form would start nothing."""
    command = ["docker-compose", "-f", str(DEPLOY / "compose.yaml"), "--profile", "monitoring"]
    done = subprocess.run(
        [*command, "config", "--format", "json"], capture_output=True, text=True, check=True
    )
    services = json.loads(done.stdout)["services"]
    assert {*services} == {*BROKERS, "prometheus", "grafana"}
    assert services["bern"]["environment"]["CONTRADA_SERVE_GENERAL"] == "1"
    for each in services.values():
        for mount in each.get("volumes", ()):
            source = Path(mount["source"])
            assert mount["type"] == "volume" or source.exists() or "etc" in source.parts, source


@contextmanager
def started(name: str, secrets: Path, places: dict[str, str]) -> Iterator[str]:
    """Yields the address of a broker of the file; `places` has the port of each on this host."""
    settings: dict[str, Any] = dict(BROKERS[name]["environment"])
    settings["CONTRADA_SERVE_HOST"] = "127.0.0.1"
    settings["CONTRADA_SERVE_HTTP"] = "127.0.0.1:0"
    settings["CONTRADA_SERVE_PORT"] = places[name]
    settings["CONTRADA_SERVE_STORE"] = str(secrets / f"{name}.db")
    for key, value in settings.items():
        here = str(value).replace("/etc/contrada", str(secrets / name))
        settings[key] = re.sub(r"//(\w+):7655", lambda it: f"//127.0.0.1:{places[it[1]]}", here)
    with subprocess.Popen(
        [*CONTRADA, "serve"], stdout=subprocess.PIPE, text=True, env={**os.environ, **settings}
    ) as broker:
        try:
            assert broker.stdout is not None
            yield broker.stdout.readline().strip()
        finally:
            broker.kill()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_its_brokers_link_and_answer_an_operator(tmp_path: Path) -> None:
    """Brokers would refuse each other's certificate or token, and stay alone."""
    program = tmp_path / "contrada"
    program.write_text(f'#!/bin/sh\nexec {" ".join(CONTRADA)} "$@"\n', "utf-8")
    program.chmod(0o755)
    secrets = tmp_path / "etc"
    path = f"{tmp_path}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    make = [str(DEPLOY / "secrets.sh"), str(secrets), *BROKERS]
    subprocess.run(make, check=True, capture_output=True, env={**os.environ, "PATH": path})
    assert not [it for it in secrets.rglob("*") if it.is_file() and it.stat().st_mode & 0o077]
    own = secrets / "operator"
    places = dict(zip(BROKERS, map(str, free_ports(3)), strict=True))
    with ExitStack() as stack:
        addresses = {each: stack.enter_context(started(each, secrets, places)) for each in BROKERS}
        command = [*CONTRADA, "doctor", "--network", addresses["oslo"], "--json"]
        command += ["--token-file", str(own / "token")]
        command += ["--tls-authority", str(own / "authority.pem")]
        found: list[dict[str, str]] = []
        for _ in range(20):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.stderr == ""
            found = [json.loads(line) for line in done.stdout.splitlines()]
            if done.returncode == 0 and found[-1]["found"].startswith("3 brokers"):
                break  # All links are there.
    assert found[-1]["found"] == "3 brokers: 'oslo', 'bern', 'riga'"
    checked = {it["what"] for it in found if it["found"].startswith("speaks protocol")}
    assert {f"{name} at {address}" for name, address in addresses.items()} == checked
    assert not [it for it in found if it["level"] == "fault"]

"""`contrada queue` and the HTTP port of a broker, as processes."""

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx
import pytest

import contrada as ct
from contrada.connections import connect_sync
from tests.net.processes import contrada, serving

pytestmark = pytest.mark.slow

DEAD = ct.Retention(attempts_max=1, dead_letter="desk.dead")


def bury(address: str, count: int, token: str = "") -> None:
    """So many dead letters of `desk`."""
    with connect_sync(address, token=token) as service:
        options: Any = {"durable": "desk", "retention": DEAD, "auto_acknowledge": False}
        with service.subscribe("n any", **options) as events:
            service.publish_batch(({"n": n} for n in range(count)), delivery="certified")
            events.nack(*[events.next(20).position for _ in range(count)])
            while service.queues.state("desk.dead").unread < count:
                pass


def lines(run: CompletedProcess[str]) -> list[dict[str, object]]:
    assert (run.returncode, run.stderr) == (0, "")
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_dead_letters_are_seen_and_moved_back(tmp_path: Path) -> None:
    """Who runs a broker could not see from afar that records are dead, nor have them handled."""
    with serving("--port", "0", "--store", str(tmp_path / "a.db")) as (_, address):
        bury(address, 3)
        listed = lines(contrada("queue", "list", address, "--json"))
        assert [(each["name"], each["unread"], each["dead"]) for each in listed] == [
            ("desk", 0, 3),
            ("desk.dead", 3, 0),
        ]
        assert lines(contrada("queue", "show", "desk.dead", address, "--json")) == [listed[1]]
        plain = contrada("queue", "list", address).stdout
        assert all(word in plain for word in ("dead letters", "desk.dead", "unread", "oldest"))
        shown = contrada("inspect", address)
        assert "2 queues" in shown.stdout
        assert "desk.dead" in shown.stdout
        peeked = lines(
            contrada("queue", "peek", "desk.dead", address, "--from", "2", "--count", "1", "--json")
        )
        assert [(it["@position"], it["@attempt"], it["n"]) for it in peeked] == [(2, 0, 1)]
        plain = contrada("queue", "peek", "desk.dead", address, "--count", "1").stdout
        assert plain.endswith("  @position=1  @attempt=0  n=0\n")
        moved = contrada("queue", "redrive", "desk.dead", address)
        assert (moved.stdout, moved.returncode) == ("moved 3 records of desk.dead\n", 0)
        assert lines(contrada("queue", "show", "desk", address, "--json"))[0]["unread"] == 3
        missing = contrada("queue", "peek", "desk.lost", address)
        assert missing.returncode == 2
        assert "there is no durable subscription 'desk.lost'" in missing.stderr


def test_a_purge_and_a_removal_ask_before(tmp_path: Path) -> None:
    """A mistyped command would delete records, or end readers that nobody thought of."""
    with serving("--port", "0", "--store", str(tmp_path / "a.db")) as (_, address):
        bury(address, 2)
        asked = contrada("queue", "purge", "desk.dead", address, text="n\n")
        assert asked.returncode == 1
        assert "purge desk.dead: 2 records?" in asked.stderr
        assert contrada("queue", "purge", "desk.dead", address).returncode == 1, "no answer"
        purged = contrada("queue", "purge", "desk.dead", address, text="y\n")
        assert purged.stdout == "purged 2 records of desk.dead\n"
        with connect_sync(address) as service:
            service.publish({"n": 9}, delivery="certified")
            with service.subscribe(durable="desk", auto_acknowledge=False) as events:
                events.next(20)
                asked = contrada("queue", "remove", "desk", address, text="n\n")
                assert "remove desk: 1 record, 1 of them at 1 reader?" in asked.stderr
                removed = contrada("queue", "remove", "desk", address, "--yes")
                assert removed.stdout == "removed desk: 1 record, 1 of them at 1 reader\n"
                with pytest.raises(ct.errors.DeliveryError, match="has ended"):
                    events.next(20)
        assert contrada("queue", "show", "desk", address).returncode == 2


def test_only_permitted_users_change_queues(tmp_path: Path) -> None:
    """A user could read, empty or delete the queue of another one, by a command or over HTTP."""
    users = tmp_path / "users.toml"
    given = {
        "boss": ("--everything", "--publisher", "*", "--durable", "*", "--inspect"),
        "desk": ("--everything", "--durable", "desk", "--durable", "desk.dead"),
        "shop": ("--everything",),
        "meter": ("--inspect",),
    }
    tokens: dict[str, Path] = {}
    for name, rights in given.items():
        tokens[name] = tmp_path / f"{name}.token"
        options = ("--users", str(users), "--token-file", str(tokens[name]))
        assert contrada("user", "add", name, *rights, *options).returncode == 0

    serve = ("--users", str(users), "--http", "127.0.0.1:0", "--store", str(tmp_path / "a.db"))
    with serving("--port", "0", "-v", *serve) as (broker, address):
        assert broker.stdout is not None
        http = broker.stdout.readline().strip()
        bury(address, 4, tokens["boss"].read_text().strip())

        def run(name: str, *arguments: str) -> CompletedProcess[str]:
            return contrada("queue", *arguments, address, "--token-file", str(tokens[name]))

        def ask(name: str, method: str, path: str) -> httpx.Response:
            shown = {"authorization": f"Bearer {tokens[name].read_text().strip()}"}
            return httpx.request(method, f"{http}{path}", headers=shown, timeout=20)

        for name in ("boss", "desk", "meter"):
            assert len(lines(run(name, "list", "--json"))) == 2
            assert len(ask(name, "GET", "/queues").json()["queues"]) == 2
        assert lines(run("shop", "list", "--json")) == []
        assert ask("shop", "GET", "/queues").json() == {"queues": [], "next": ""}
        commands = (("peek",), ("redrive",), ("release",), ("purge", "--yes"), ("remove", "--yes"))
        requests = (
            *(("GET", "/queues/records?name=desk.dead"), ("DELETE", "/queues?name=desk.dead")),
            *(("POST", f"/queues/{step}?name=desk.dead") for step in ("redrive", "release")),
            ("DELETE", "/queues/records?name=desk.dead"),
        )
        for name in ("shop", "meter"):
            for command, *more in commands:
                refused = run(name, command, "desk.dead", *more)
                assert refused.returncode != 0
                assert (
                    f"{name!r} may not use the durable subscription 'desk.dead'" in refused.stderr
                )
            for method, path in requests:
                answer = ask(name, method, path)
                assert answer.status_code == 403, path
                assert "may not use the durable subscription" in answer.json()["error"]
        assert ask("shop", "GET", "/queues?name=desk").status_code == 403
        assert ask("meter", "GET", "/queues?name=desk.dead").json()["unread"] == 4

        peeked = ask("desk", "GET", "/queues/records?name=desk.dead&from=2&count=2").json()
        assert [(it["position"], it["attempt"]) for it in peeked["records"]] == [(2, 0), (3, 0)]
        assert [it["event"]["data"]["n"] for it in peeked["records"]] == [1, 2]
        assert (peeked["unreadable"], peeked["next"]) == ({}, 4)
        assert run("desk", "release", "desk.dead").stdout == "released 0 records of desk.dead\n"
        assert ask("desk", "POST", "/queues/release?name=desk").json() == {"released": 0}
        assert ask("desk", "POST", "/queues/redrive?name=desk.dead").json() == {"moved": 4}
        assert ask("desk", "DELETE", "/queues/records?name=desk").json() == {"purged": 4}
        assert ask("desk", "DELETE", "/queues?name=desk").status_code == 204
        assert ask("desk", "GET", "/queues?name=desk").status_code == 409
        for path in ("/queues?nmae=desk", "/queues/records", "/queues/records?name=desk&count=x"):
            assert ask("desk", "GET", path).status_code == 400, path
        assert ask("desk", "POST", "/queues").status_code == 405
        broker.terminate()
        _, log = broker.communicate(timeout=20)
    for change in ("moved 4 dead letters", "purged 4 records", "ended desk"):
        assert any(f"of desk {change}" in line for line in log.splitlines()), change

"""`contrada user may`: its answers are those of a broker with the same file."""

import re
from pathlib import Path
from typing import Any

import pytest

import contrada as ct
from contrada.cli.read_flags import attributes_of
from contrada.connections import connect
from contrada.errors import NotPermittedError
from contrada.net.broker.broker import Broker
from contrada.net.broker.users import Users
from contrada.net.wire.tokens import new_token
from tests.asynchronous import on_loop
from tests.commands import here

TOKEN, RECORD = new_token("d'1")

FILE = f"""
[groups.device]
publish = ["device = {{user}} and price < 100", "x = 1", "p = 1 and @publisher = {{user}}"]
subscribe = ["a < 5", "a > 4"]
[users."d'1"]
token = "{RECORD}"
groups = ["device"]
subscribe = "b = 1 and c any"
durable = ["logs"]
[users.narrow]
subscribe = "a < 5"
narrow = true
[users.old]
publish = true
expires = 2020-01-01T00:00:00Z
[users.nobody]
[groups.watch]
inspect = true
[users.guard]
groups = ["watch"]
sinks = true
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "users.toml"
    file.write_text(FILE)
    return file


def may(path: Path, *arguments: str) -> tuple[int, str]:
    done = here("user", "may", *arguments, "--users", str(path))
    return done.returncode, done.stdout + done.stderr


PUBLISH = (
    ("device=d'1", "price=50"),
    ("device=d'1", "price=200"),
    ("device=d1", "price=50"),
    ("device=d'1", "device=d2", "price=50"),
    ("x=1", "x=2"),
    ("x=1", "device=d2"),
    ("y=1",),
    ("p=1",),
)
SUBSCRIBE = (
    "a = 3",
    "a >= 0",
    "a any",
    "b = 1",
    "b = 1 and c > 3",
    "a = 1 or b = 1 and c = 2",
    "everything",
)
PATTERNS = ("a = 1 -> a = 2", "a = 1 -> z = 2", "a >= 0 -> b = 1 and c = 1")


@on_loop
async def test_its_answers_are_those_of_a_broker(path: Path) -> None:
    """An operator would grant too much, or search for a fault where there is none."""
    answers: dict[bool, int] = {True: 0, False: 0}

    def agrees(is_permitted: bool, *arguments: str) -> None:
        status, output = may(path, "d'1", *arguments)
        assert output.startswith("yes, by " if is_permitted else "no: "), (arguments, output)
        assert status == (not is_permitted)
        answers[is_permitted] += 1

    async with (
        Broker(port=0, users=Users.read(path), store=path.with_name("a.db")) as broker,
        connect(broker.address, token=TOKEN) as service,
    ):
        for attributes in PUBLISH:
            try:
                await service.publish(attributes_of(attributes))
                agrees(True, "publish", *attributes)
            except NotPermittedError:
                agrees(False, "publish", *attributes)
        wanted: list[tuple[Any, str]] = [(text, text) for text in SUBSCRIBE]
        for asked, text in [*wanted, *((ct.Pattern(text), text) for text in PATTERNS)]:
            try:
                async with service.subscribe(asked):
                    agrees(True, "subscribe", text)
            except NotPermittedError:
                agrees(False, "subscribe", text)
        for text in SUBSCRIBE[:5]:
            try:
                async with service.query(text, timeout_s=5) as found:
                    assert [each async for each in found] == []
                agrees(True, "query", text)
            except NotPermittedError:
                agrees(False, "query", text)
        for text in ("x = 1", "device = 'd2'", "x any"):
            try:
                async with service.advertise(text):
                    agrees(True, "advertise", text)
            except NotPermittedError:
                agrees(False, "advertise", text)
        for name in ("logs", "logs/1", "d'1"):
            try:
                async with service.subscribe("a = 1", durable=name):
                    agrees(True, "durable", name)
            except NotPermittedError:
                agrees(False, "durable", name)
    assert min(answers.values()) > 8, answers


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("d'1", "subscribe", "a = 3"), "yes, by subscribe filter of the group device: a < 5"),
        (("d'1", "subscribe", "b = 1 and c = 1"), "yes, by subscribe filter: b = 1 and c any"),
        (("d'1", "publish", "x=1"), "yes, by publish filter of the group device: x = 1"),
        (("d'1", "subscribe", "a >= 0"), "yes, by these together: "),
        (("d'1", "subscribe", "a < 9 and b = 2"), "yes, by these together: "),
        (("d'1", "durable", "logs/1"), "yes, by its name 'logs'"),
        (("d'1", "durable", "d'1"), "no: \"d'1\" may not use the durable .* its name 'logs'"),
        (("d'1", "subscribe", "a any"), r"no: .* for example it would read {.*'a': 'a'.*}, which"),
        (("d'1", "publish", "device=d'1", "price=200"), "200 is above the nearest bound 100"),
        (("d'1", "publish", "x=1", "--publisher", "bob"), "no: .* may not publish as 'bob';"),
        (("d'1", "advertise", "x = 2"), "no: .* may not offer x = 2 .* device: x = 1"),
        (("narrow", "subscribe", "a < 9"), "in part, narrowed to: a < 5"),
        (("old", "publish", "a=1"), "no: the user 'old' has expired"),
        (("nobody", "subscribe", "a = 1"), "no: .* the user has no rule for that"),
    ],
)
def test_it_names_the_rule_or_the_reason(
    arguments: tuple[str, ...], words: str, path: Path
) -> None:
    """An operator would not know which line of the file to change."""
    status, output = may(path, *arguments)
    assert re.match(
        words if words.startswith(("no", "yes", "in")) else f".*{words}",
        re.sub(r"\s+", " ", output),
    ), output
    assert status == output.startswith("no: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("d2", "publish", "a=1"), "there is no user 'd2'; there are: d'1, narrow"),
        (("d'1", "subscribe", "a <"), "line 1, column 4"),
        (("d'1", "subscribe", "a", "=", "1"), "subscribe takes one argument in quotes, found 3"),
        (("d'1", "publish", "a"), "argument"),
        (("d'1", "publish"), "publish takes NAME=VALUE, once or several times, found none"),
        (("d'1", "fly", "a"), "'fly' is not one of"),
    ],
)
def test_a_wrong_question_is_no_answer(arguments: tuple[str, ...], words: str, path: Path) -> None:
    """A script would take a mistyped question for a no."""
    status, output = may(path, *arguments)
    assert (status, words in output) == (2, True), output


def test_users_from_outside_have_the_rights_of_their_token(path: Path) -> None:
    """An operator could not ask about the users that are in no file."""
    path.write_text(f"{FILE}[groups.desk]\njwt = 'Desk'\npublish = 'd = {{user}}'\nlink = true\n")

    def asked(name: str, *what: str, group: str = "Desk") -> tuple[int, str]:
        return may(path, name, *what, "--jwt-group", "Other", "--jwt-group", group)

    assert asked("alice", "publish", "d=alice") == (
        0,
        'yes, by publish filter of the group desk: d = "alice"\n',
    )
    assert asked("alice", "publish", "d=bob")[0] == 1
    assert asked("alice", "link") == (0, "yes, by link = true of the group desk\n")
    for name, group, words in (
        ("alice", "Dusk", "no: alice: no user has this subject, and no group a group of the token"),
        ("guard", "Desk", "no: guard: a user of this name is identified otherwise"),
        ("logs", "Desk", "no: logs: others have names of publishers or subscriptions below it"),
    ):
        status, said = asked(name, "publish", "d=1", group=group)
        assert (status, said.strip()) == (1, words)
    path.write_text(path.read_text().replace("[users.guard]", "[users.guard]\njwt = 'g-1'"))
    assert asked("g-1", "publish", "d=guard")[0] == 0
    assert asked("g-1", "inspect") == (0, "yes, by inspect = true of the group watch\n")


def test_rights_without_an_object_are_told_with_their_group(path: Path) -> None:
    """An operator would have to read the groups of a user."""
    assert may(path, "guard", "inspect") == (0, "yes, by inspect = true of the group watch\n")
    assert may(path, "guard", "sinks") == (0, "yes, by sinks = true\n")
    status, said = may(path, "guard", "link")
    assert status == 1
    assert said.startswith("no: the user 'guard' does not have the right 'link': link = true in")
    assert may(path, "guard", "link", "x")[0] == 2
    assert may(path, "guard", "publish")[0] == 2

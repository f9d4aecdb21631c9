"""`contrada offer` and `contrada ask` as a user starts them, with real databases and files."""

import asyncio
import json
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import contrada as ct
from contrada.cli import main
from tests.asynchronous import on_loop
from tests.net.processes import WAIT_S, contrada, serving
from tests.own_operators import CONTRADA

pytestmark = pytest.mark.slow

BOOKS = [
    ("Steinbeck", "Grapes of Wrath", 1, 9.5),
    ("Steinbeck", "East of Eden", 2, None),
    ("Joyce", "Ulysses", 1, 12.25),
]
BOOK = dict(zip(("author", "title", "edition", "price"), BOOKS[0], strict=True))
EVIL = """O'Hara"; drop table books; --"""


def books(path: Path) -> Path:
    """A database with a table of books."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE books (author, title, edition INTEGER, price REAL)")
        database.executemany("INSERT INTO books VALUES (?, ?, ?, ?)", BOOKS)
        database.commit()
    return path


@contextmanager
def offering(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Runs the command, until it has printed its offers."""
    with subprocess.Popen(
        [*CONTRADA, "offer", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("+ ")
            yield process
        finally:
            process.kill()


def ask(address: str, question: str, *options: str) -> Result:
    """Returns the output of the command, run in this process."""
    return CliRunner().invoke(main, ["ask", "--to", address, question, *options])


def table_of(errors: str) -> list[list[str]]:
    """The rows of the table of sources."""
    return [re.split(r"\s{2,}", line.strip()) for line in errors.splitlines()[1:]]


def test_offered_records_answer_queries(tmp_path: Path) -> None:
    """Data could not be offered from a shell, or the queries not be seen."""
    (tmp_path / "more.csv").write_text("author,title,edition\nWoolf,Orlando,1\nWoolf,The Waves,7\n")
    table = ("--table", str(books(tmp_path / "books.db")), "books", "--name", "library")
    files = ("--files", str(tmp_path / "*.csv"), "--name", "files")
    with (
        serving("--port", "0") as (_, address),
        offering("--to", address, *table) as library,
        offering("--to", address, *files),
    ):
        asked = contrada("ask", "--to", address, "author = 'Steinbeck' and edition < 2")
        assert asked.stdout == (
            '@publisher="library"  author="Steinbeck"  title="Grapes of Wrath"  edition=1'
            "  price=9.5\n"
        )
        assert (asked.returncode, table_of(asked.stderr)) == (0, [["library", "answered", "1"]])
        listed = ask(address, "edition = 1", "--json", "--sort", "title")
        found = [json.loads(line) for line in listed.stdout.splitlines()]
        assert found == [
            {"@publisher": "library", **BOOK},
            {"@publisher": "files", "author": "Woolf", "title": "Orlando", "edition": 1},
            {"@publisher": "library", **dict(zip(BOOK, BOOKS[2], strict=True))},
        ]
        computing = ("--count", "--sum", "price", "--top", "1:edition", "--by", "author")
        computed = ask(address, "edition any", *computing)
        assert computed.stdout.splitlines()[2:] == [
            'author="Steinbeck"  count=2  sum(price)=9.5',
            '  top 1(edition):  author="Steinbeck"  title="East of Eden"  edition=2',
            'author="Woolf"  count=2  sum(price)=0',
            '  top 1(edition):  author="Woolf"  title="The Waves"  edition=7',
        ]
        lines = ask(address, "edition any", *computing[:3], "--json")
        assert json.loads(lines.stdout) == {"count": 5, "sum(price)": 21.75}
        assert "no answer has" not in listed.stderr + computed.stderr + lines.stderr
        lacking = ask(address, "edition any", "--sum", "prise", "--by", "authr", "--json")
        assert json.loads(lacking.stdout) == {"sum(prise)": 0}
        assert lacking.stderr.splitlines()[-2:] == [
            "no answer has 'authr', which an option names",
            "no answer has 'prise', which an option names",
        ]
        unsorted = ask(address, "edition any", "--sort=-prise")
        assert (unsorted.exit_code, unsorted.stdout.count("\n")) == (0, 5)
        assert unsorted.stderr.endswith("no answer has 'prise', which an option names\n")
        few = ask(address, "edition any", "--limit", "2")
        assert (few.exit_code, few.stdout.count("\n")) == (0, 2)
        nobody = ask(address, "author = 'Homer'")
        assert (nobody.exit_code, nobody.stdout) == (0, "")
        assert nobody.stderr == "no source was asked: none within reach describes such data\n"
        library.send_signal(signal.SIGINT)
        told, errors = library.communicate(timeout=WAIT_S)
        assert library.returncode == 130
        # A source stopped at its limit may have ended before the library began.
        assert re.fullmatch(r"asked [567] times\n", errors)
        assert told.splitlines()[0] == '? author = "Steinbeck" and edition < 2'
        assert ask(address, "author = 'Joyce'").stderr == nobody.stderr


def test_a_value_is_never_part_of_a_statement(tmp_path: Path) -> None:
    """An asker could read, change or destroy other data."""
    path = books(tmp_path / "books.db")
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO books (author, edition) VALUES (?, 3)", (EVIL,))
        database.commit()
    with serving("--port", "0") as (_, address):
        with offering("--to", address, "--table", str(path), "books", "--describe", "author any"):
            said = EVIL.replace('"', '\\"')
            asked = ask(address, f'author = "{said}"', "--json")
            assert [json.loads(line)["author"] for line in asked.stdout.splitlines()] == [EVIL]
            for evil in ('author = "\' or 1=1 --"', "author prefix \"x' or ''='\""):
                none = ask(address, evil)
                assert (none.exit_code, none.stdout) == (0, "")
                assert table_of(none.stderr)[0][1] == "empty"
            named = ask(address, "`author\"=''or 1=1 --` = 1 and author any")
            assert named.stdout == ""
        wrong = contrada("offer", "--to", address, "--table", str(path), 'books"; drop table books')
        assert wrong.returncode == 2
        assert "there is no such table" in wrong.stderr
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM books").fetchone() == (len(BOOKS) + 1,)


def test_the_status_reports_missing_answers(tmp_path: Path) -> None:
    """A script would take a part for the whole."""
    path = books(tmp_path / "books.db")
    (tmp_path / "one.json").write_text('{"author": "Woolf"}\n')
    with (
        serving("--port", "0") as (_, address),
        offering("--to", address, "--table", str(path), "books", "--name", "\x1b[2J\nlibrary"),
        offering("--to", address, "--files", str(tmp_path / "one.json"), "--name", "one"),
    ):
        path.unlink()
        for options, printed in (([], '@publisher="one"'), (["--count"], "count=1")):
            asked = ask(address, "author any", *options)
            assert (asked.exit_code, asked.stdout.split("  ")[0].strip()) == (4, printed)
            rows = {row[0]: row[1:] for row in table_of(asked.stderr)}
            assert rows["one"] == ["answered", "1"]
            (failed,) = (row for name, row in rows.items() if "library" in name and row)
            assert failed[0] == "failed"
            assert "unable to open" in failed[-1]
            last = asked.stderr.splitlines()[-1]
            assert last == "answers may be missing of: \\x1b[2J\\nlibrary"


def test_a_description_is_worked_out_again(tmp_path: Path) -> None:
    """New rows of a table would not be found, or a wrong description would stay for ever."""
    path = books(tmp_path / "books.db")
    options = ("--table", str(path), "books", "--fresh", "0.05", "--json")
    with (
        serving("--port", "0") as (_, address),
        subprocess.Popen(
            [*CONTRADA, "offer", "--to", address, *options], stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["is_on_offer"]
            assert ask(address, "author = 'Woolf'").stdout == ""
            with closing(sqlite3.connect(path)) as database:
                database.execute("INSERT INTO books (author) VALUES ('Woolf')")
                database.commit()
            changes = [json.loads(process.stdout.readline()) for _ in range(2)]
            assert [each["is_on_offer"] for each in changes] == [False, True]
            asked = ask(address, "author = 'Woolf'")
            assert asked.stdout.endswith('author="Woolf"\n')
        finally:
            process.kill()


@on_loop
async def test_ctrl_c_ends_a_question() -> None:
    """A source would work on for a departed asker."""
    has_ended = asyncio.Event()

    async def never(_: ct.SourceQuery) -> AsyncIterator[dict[str, int]]:
        try:
            yield {"a": 1}
            await asyncio.Event().wait()
        finally:
            has_ended.set()

    with serving("--port", "0") as (_, address):
        async with ct.connect(address) as service, service.offer("a any", never, name="never"):
            command = [*CONTRADA, "ask", "--to", address, "a any"]
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
            assert process.stdout is not None
            assert b"a=1" in await process.stdout.readline()
            process.send_signal(signal.SIGINT)
            _, errors = await process.communicate()
            assert process.returncode == 130
            assert table_of(errors.decode())[0][:2] == ["never", "stopped"]
            await has_ended.wait()
            late = [*CONTRADA, "ask", "--to", address, "a any", "--timeout", "0.3"]
            process = await asyncio.create_subprocess_exec(*late, stdout=pipe, stderr=pipe)
            _, errors = await process.communicate()
            assert process.returncode == 4
            assert table_of(errors.decode())[0][:2] == ["never", "timed out"]


def test_an_offer_waits_for_a_lost_broker(tmp_path: Path) -> None:
    """A source would be gone after each restart of its broker."""
    table = ("--table", str(books(tmp_path / "books.db")), "books")
    with serving("--port", "0") as (broker, address), offering("--to", address, *table) as process:
        broker.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert process.stderr.readline() == "not connected, trying again: the broker stops\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=WAIT_S)
        assert errors.endswith("asked 0 times\n")
    away = ask(address, "a = 1")
    assert away.exit_code == 1
    assert away.stderr.startswith("contrada: error: ")


def test_an_offer_ends_after_some_seconds(tmp_path: Path, broker_address: str) -> None:
    """A script would wait for ever."""
    table = ("--table", str(books(tmp_path / "books.db")), "main.books", "--seconds", "0.1")
    ended = contrada("offer", "--to", broker_address, *table)
    assert (ended.returncode, ended.stderr) == (0, "asked 0 times\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ask", "a = "], "found the end of the text"),
        (["ask", "a < 1 and a > 2"], "no notification can match"),
        (["ask", "a = 1", "--top", "3"], "--top: found '3', expected N:ATTR"),
        (["ask", "a = 1", "--top", "0:a"], "expected 1 to"),
        (["ask", "a = 1", "--by", "b"], "add one, such as --count"),
        (["ask", "a = 1", "--count", "--limit", "3"], "are for answers"),
        (["ask", "a = 1", "--sum", ""], "name"),
        (["ask", "a = 1", "--to", "x"], "address 'x': expected contrada://"),
        (["offer"], "--files GLOB, one of them"),
        (["offer", "--files", "*.nothing"], "there is no such file"),
        (["offer", "--table", "nowhere.db", "x"], "nowhere.db: unable to open database file"),
        (["offer", "--table", "x", "y", "--format", "csv"], "--format is for --files"),
        (["offer", "--table", "x", "y", "--describe", "a ="], "found the end of the text"),
        (["offer", "--table", "x", "y", "--describe", "a any", "--fresh", "3"], "--fresh is for"),
        (["offer", "--table", "x", "y", "--name", "@x"], "the first is not @"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments: list[str], message: str) -> None:
    """A person would see a traceback, or wait for something that is no question."""
    found = CliRunner().invoke(main, arguments)
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith("contrada: error: ")
    assert message in found.stderr
    assert found.stderr.count("\n") == 1


def test_a_folder_of_parquet_is_queried(tmp_path: Path, broker_address: str) -> None:
    """Files of the commonest kind could be asked by programs alone."""
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    flights = arrow.table({"parquet_origin": ["JFK", "LGA"], "dest": ["JFK", "BOS"]})
    sys.modules["pyarrow.parquet"].write_table(flights, tmp_path / "one.parquet")
    with offering("--to", broker_address, "--files", str(tmp_path)):
        asked = ask(broker_address, "parquet_origin = $x and dest = $x", "--json")
    assert json.loads(asked.stdout)["dest"] == "JFK"

"""Commands end at a signal or a closed pipe: at once, and without a traceback.

Real processes, real pipes, and a terminal where it matters.
"""

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from contrada.connections import connect_sync

WAIT_S = 20
CONTRADA = (sys.executable, "-c", "from contrada_command import main; main()")

STOPS_AT = """
import importlib.abc, os, select, sys
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            print('here', flush=True)
            # Not one call without an end: it would miss a signal just before it.
            while not select.select([sys.stdin], [], [], 0.05)[0]:
                pass
sys.meta_path.insert(0, Finder())
from contrada_command import main; main()
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A broker of these tests."""
    with subprocess.Popen(
        [*CONTRADA, "serve", "--port", "0", "--store", "memory:"], stdout=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        yield broker.stdout.readline().strip()
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(WAIT_S) == 0


def started(command: Sequence[str], **streams: int) -> "subprocess.Popen[str]":
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **{**pipes, **streams})  # type: ignore[call-overload,no-any-return]


def interrupted(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """The status and the errors of a process after one Ctrl-C."""
    process.send_signal(signal.SIGINT)
    status = process.wait(WAIT_S)
    assert process.stderr is not None
    errors = process.stderr.read()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    return status, errors


@pytest.mark.quick_every(3)
@pytest.mark.parametrize(
    "module", ["contrada", "contrada.model", "contrada.cli", "click", "contrada.cli.sub", "asyncio"]
)
def test_ctrl_c_while_the_command_is_loaded(module: str) -> None:
    """Ctrl-C right after a typing error would print a traceback."""
    code = STOPS_AT.format(name=module)
    process = started([sys.executable, "-c", code, "sub", "everything"])
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    assert interrupted(process) == (130, "")


def test_ctrl_c_while_pub_waits_for_its_input(address: str) -> None:
    """A second Ctrl-C would be needed, or the end of the input."""
    process = started([*CONTRADA, "pub", "--to", address, "--json", "-"])
    assert process.stdin is not None
    with connect_sync(address) as service, service.subscribe("a = 1") as events:
        process.stdin.write('{"a": 1}\n{"a": ')  # Half a line, too, is waited for.
        process.stdin.flush()
        assert events.next(WAIT_S)["a"] == 1
        assert interrupted(process) == (130, "")


@pytest.mark.parametrize(("limits", "status"), [((), 0), (("--count", "9"), 143)])
def test_a_supervisor_ends_sub_in_order(address: str, limits: tuple[str, ...], status: int) -> None:
    """A stop of the service would be reported as a failure, or an early end as a complete run."""
    process = started([*CONTRADA, "sub", "n any", "--to", address, *limits])
    assert process.stdout is not None
    with connect_sync(address) as service:
        while not select.select([process.stdout], [], [], 0.05)[0]:
            service.publish({"n": 1})  # Until it has subscribed.
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, errors) == (status, "")


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["Ctrl-C", "the broker"])
def test_pub_tells_how_many_it_published_however_it_ends(ends: str) -> None:
    """A later run would not know its first line."""
    with subprocess.Popen(
        [*CONTRADA, "serve", "--port", "0", "--store", "memory:"], stdout=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        address = broker.stdout.readline().strip()
        process = started([*CONTRADA, "pub", "--to", address, "--json", "-"])
        assert process.stdin is not None
        with connect_sync(address) as service, service.subscribe("a >= 1") as events:
            process.stdin.write('{"a": 1}\n{"a": 2}\n')
            process.stdin.flush()
            assert [events.next(WAIT_S)["a"] for _ in range(2)] == [1, 2]
            # The text read afterwards shows that these are answered, but not that it is itself.
            process.stdin.write('{"a": 3}\n')
            process.stdin.flush()
            assert events.next(WAIT_S)["a"] == 3
        if ends == "the broker":
            broker.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            assert "trying again: the broker stops" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        process.wait(WAIT_S)  # before its input ends, which would end it, too
        broker.send_signal(signal.SIGTERM)
        broker.wait(WAIT_S)
        out, errors = process.communicate("", timeout=WAIT_S)
    assert out in ("published 2\n", "published 3\n")
    assert process.returncode == 130
    assert not errors or (ends == "the broker" and "trying again: connection refused" in errors)


@pytest.mark.slow
def test_ctrl_c_while_the_broker_does_not_answer() -> None:
    """A command would hang as long as its broker does."""
    with subprocess.Popen(
        [*CONTRADA, "serve", "--port", "0", "--store", "memory:"], stdout=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        address = broker.stdout.readline().strip()
        process = started([*CONTRADA, "sub", "--to", address, "b = 1", "--json"])
        assert process.stdout is not None
        with connect_sync(address) as service:
            while not select.select([process.stdout], [], [], 0.05)[0]:
                service.publish({"b": 1})
        broker.send_signal(signal.SIGSTOP)
        try:
            assert interrupted(process) == (130, "")
        finally:
            broker.kill()


def test_each_line_of_a_pipe_is_published_as_it_comes(address: str) -> None:
    """Lines of a running program would be published when it ends, if ever."""
    process = started([*CONTRADA, "pub", "--to", address, "--json", "-"])
    assert process.stdin is not None
    with connect_sync(address) as service, service.subscribe("pipe = 1") as events:
        for number in range(3):
            process.stdin.write(f'{{"pipe": 1, "n": {number}}}\n')
            process.stdin.flush()
            assert events.next(WAIT_S)["n"] == number
        process.stdin.write('{"pipe": 1, "n": 3}')
        out, errors = process.communicate(timeout=WAIT_S)
        assert events.next(WAIT_S)["n"] == 3
    assert (process.returncode, out, errors) == (0, "published 4\n", "")


@pytest.mark.slow
def test_each_line_of_a_terminal_is_published_as_it_comes(address: str) -> None:
    """A person at a terminal would see no progress; and one Ctrl-C there ends it."""
    outer, inner = pty.openpty()
    process = started([*CONTRADA, "pub", "--to", address, "--json", "-"], stdin=inner)
    os.close(inner)
    with connect_sync(address) as service, service.subscribe("typed = 1") as events:
        os.write(outer, b'{"typed": 1}\n')
        assert events.next(WAIT_S)["typed"] == 1
        assert interrupted(process) == (130, "")
    os.close(outer)


@pytest.mark.slow
def test_a_file_is_published_where_it_is_standard_input(address: str, tmp_path: Path) -> None:
    """`pub --json - < FILE` would be refused: a file has no readiness events."""
    (tmp_path / "a.jsonl").write_text('\ufeff{"a": 1}\r\n\n{"a": 2}', "utf-8")
    with (tmp_path / "a.jsonl").open() as file:
        process = started([*CONTRADA, "pub", "--to", address, "--json", "-"], stdin=file.fileno())
        out, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out, errors) == (0, "published 2\n", "")


@pytest.mark.quick_first
@pytest.mark.parametrize(
    "arguments", [("sub", "c = 1", "--to", "{address}", "--timeout", "0.5"), ("--help",)]
)
@pytest.mark.parametrize("closed", ["1", "2", "1 2", "0 1 2"])
def test_a_closed_stream_is_no_error(address: str, arguments: tuple[str, ...], closed: str) -> None:
    """A service of the system, which may close streams, would end with a traceback."""
    closing = "".join(f"os.close({number});" for number in closed.split())
    code = (
        f"import os, sys; {closing}"
        "os.execv(sys.executable, [sys.executable, '-c', "
        "'from contrada_command import main; main()', *sys.argv[1:]])"
    )
    filled = [each.format(address=address) for each in arguments]
    run = subprocess.run(
        [sys.executable, "-c", code, *filled], capture_output=True, text=True, timeout=WAIT_S
    )
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.slow
def test_output_that_nobody_reads_on_ends_it(tmp_path: Path) -> None:
    """`contrada match … | head` would end with a traceback."""
    (tmp_path / "subs").write_text("all: everything\n")
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n' * 20_000)
    command = [*CONTRADA, "match", str(tmp_path / "subs"), str(tmp_path / "a.jsonl")]
    with started(command) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith('{"subscription":"all"')
        process.stdout.close()
        assert process.wait(WAIT_S) == 0
        assert process.stderr.read() == ""


@pytest.mark.quick_first
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_naming_service_ends_in_order(address: str, number: signal.Signals) -> None:
    """A supervisor would see a failure, and no statistics."""
    process = started([*CONTRADA, "xml", "daemon", "--to", address, "--store", "memory:"])
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(number)
    out, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out) == (0 if number is signal.SIGTERM else 130, "")
    assert errors.startswith("0 names of 0 kinds")
    assert not Path("memory:").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_feed_ends_in_order(tmp_path: Path, number: signal.Signals) -> None:
    """Its statistics would be missing, and its state written by chance."""
    (tmp_path / "f.rss").write_text("<rss><channel><item><guid>1</guid></item></channel></rss>")
    state = tmp_path / "state"
    command = ["feed", str(tmp_path / "f.rss"), "--every", "0.01", "--state", str(state)]
    process = started([*CONTRADA, *command])
    assert process.stderr is not None
    for _ in range(3):
        process.stderr.readline()
    process.send_signal(number)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == (0 if number is signal.SIGTERM else 130)
    assert errors.splitlines()[-1].startswith("in ")
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("state")] == ["state"]


@pytest.mark.slow
def test_ctrl_c_while_a_document_is_rendered(tmp_path: Path) -> None:
    """Ctrl-C would take effect only after the last entry of a large document."""
    entries = 150_000
    (tmp_path / "a.xml").write_text(f"<r>{'<e><a>1</a><b>x</b></e>' * entries}</r>")
    process = started([*CONTRADA, "xml", "render", str(tmp_path / "a.xml"), "--entries", "e"])
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, errors) == (130, "")
    assert out.count("\n") < entries - 2

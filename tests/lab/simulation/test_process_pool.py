"""`in_processes`: one result of each case, and an early end without waiting."""

import signal
from pathlib import Path

from contrada.lab.simulation.process_pool import in_processes

JOBS = 2


def begun(file: Path) -> Path:
    """Leaves a file behind."""
    file.touch()
    return file


def test_each_case_has_its_result(tmp_path: Path) -> None:
    """A world or a run of a sweep would be left out, or counted twice."""
    cases = [tmp_path / str(number) for number in range(9)]
    assert list(in_processes(begun, cases, jobs=1)) == cases
    assert sorted(in_processes(begun, cases, JOBS)) == cases
    assert list(in_processes(begun, [], JOBS)) == []


def test_an_early_end_starts_no_cases(tmp_path: Path) -> None:
    """After Ctrl-C a person would wait for worlds that had not begun."""
    cases = [tmp_path / str(number) for number in range(20)]
    results = in_processes(begun, cases, JOBS)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert len(list(tmp_path.iterdir())) <= JOBS


def test_processes_end_at_an_interrupt_without_a_word() -> None:
    """Ctrl-C would print a traceback of each process."""
    handlers = list(in_processes(signal.getsignal, [signal.SIGINT] * 2, 2))
    assert handlers == [signal.SIG_DFL] * 2

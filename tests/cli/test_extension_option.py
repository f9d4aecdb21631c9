"""Operators of users, by `--extension` and by packages."""

import json
from pathlib import Path

import pytest

from tests.own_operators import EXTENSION, contrada, write_module, write_package


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the module, subscriptions that use its operator, and rows."""
    write_module(tmp_path)
    (tmp_path / "subs").write_text("long: name longer '3'\n", "utf-8")
    (tmp_path / "a.csv").write_text("name\nabc\nabcd\n", "utf-8")
    return tmp_path


def test_an_operator_is_known_by_the_option(folder: Path) -> None:
    """Operators of users could not be used in files of subscriptions."""
    run = contrada(folder, "match", "subs", "a.csv", "--extension", EXTENSION)
    assert (run.returncode, run.stderr) == (0, "")
    assert [json.loads(line)["record"] for line in run.stdout.splitlines()] == [3]


@pytest.mark.slow
def test_without_it_the_operator_is_unknown(folder: Path) -> None:
    """This module's other tests would hold nothing otherwise."""
    run = contrada(folder, "match", "subs", "a.csv")
    assert run.returncode == 2
    assert "longer" in run.stderr


def test_installed_packages_bring_operators(folder: Path) -> None:
    """An entry point would not be loaded."""
    write_package(folder, EXTENSION)
    run = contrada(folder, "match", "subs", "a.csv")
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.count("\n") == 1


@pytest.mark.slow
def test_a_package_that_cannot_be_loaded_is_one_line(folder: Path) -> None:
    """A person could not see the package that stops the command."""
    write_package(folder, "no_such_module:Class")
    run = contrada(folder, "match", "subs", "a.csv")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.count("\n") == 1
    assert "entry point 'Length' of the package lengths" in run.stderr

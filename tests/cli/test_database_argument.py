"""Passwords of databases are not among the arguments of processes."""

import pytest
from click.testing import CliRunner

from contrada.cli import main
from contrada.cli.shared_options import has_password

SECRET = "hunter2"  # pragma: allowlist secret


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--store"),
        ("store", "show"),
        ("store", "check"),
        ("store", "restore", "a.copy"),
        ("xml", "daemon", "--store"),
    ],
)
@pytest.mark.parametrize(
    "place", [f"postgresql://u:{SECRET}@h/d", f"postgresql://h/d?password={SECRET}"]
)
def test_a_password_in_an_argument_is_refused(arguments: tuple[str, ...], place: str) -> None:
    """All users of the machine would see it, and a log that quotes the message would keep it."""
    refused = CliRunner().invoke(main, [*arguments, place])
    assert refused.exit_code == 2
    said = " ".join(refused.output.split())
    assert "found a password" in said
    assert "PGPASSWORD" in said
    assert SECRET not in said


def test_that_of_a_table_too() -> None:
    """As above, for a table."""
    refused = CliRunner().invoke(main, ["offer", "--table", f"postgresql://u:{SECRET}@h/d", "t"])
    assert (refused.exit_code, SECRET in refused.output) == (2, False)


def test_other_places_have_none() -> None:
    """A store without a password would be refused."""
    for place in (
        *("contrada.db", "memory:", "a:b@c.db", "postgresql://u@h/d?schema=x&sslmode=require"),
        *("postgresql://h:5432/d", "postgresql:///d?service=x", "postgres://u@[::1]:5/d"),
    ):
        assert not has_password(place), place

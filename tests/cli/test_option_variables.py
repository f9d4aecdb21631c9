"""Options of commands as environment variables."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from contrada.cli import bridge, main
from contrada.cli.client_command import TOKEN_VARIABLE
from contrada.cli.option_variables import options_of, variables_of
from contrada.cli.serve import _flags, serve
from contrada.limits import PREFIX as LIMITS
from contrada.model.native import INTERPRETED_VARIABLE


def commands(
    group: click.Group, parent: click.Context | None = None
) -> Iterator[tuple[str, click.Command]]:
    """Yields the path and the command of all leaves."""
    context = click.Context(group, info_name="contrada" if parent is None else group.name)
    context.parent = parent
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, context)
        else:
            yield name, command


def test_every_option_has_a_variable_of_its_own() -> None:
    """A setting would be missing for containers, or set an option of another command, too."""
    given = [variables_of(option) for _, each in commands(main) for option in options_of(each)]
    assert all(given)
    found = [name for names in given for name in names]
    assert len(found) == len(set(found))
    assert {"CONTRADA_SERVE_JSON", "CONTRADA_QUEUE_LIST_TLS_KEY", "CONTRADA_PUB_TO"} <= {*found}
    others = {TOKEN_VARIABLE, INTERPRETED_VARIABLE, bridge.PASSWORD_VARIABLE}
    assert not {*found} & {*others, bridge.FORMER_VARIABLE}
    assert not [each for each in found if each.startswith(LIMITS)]


def flags(*arguments: str, **variables: str) -> dict[str, Any]:
    """Returns the settings of `contrada serve` with these arguments and variables."""
    got: list[dict[str, Any]] = []

    @click.pass_context
    def show(ctx: click.Context, /, **_: Any) -> None:
        got.append(_flags(ctx))

    command = main.get_command(click.Context(main), "serve")
    assert command is serve
    shown = click.Command("serve", callback=show, params=serve.params)
    done = CliRunner().invoke(shown, arguments, env=variables)
    assert done.exit_code == 0, done.output
    return got[0]


def test_variables_are_settings_of_a_broker_and_flags_precede_them() -> None:
    """A container would ignore its settings, or a person at a shell could not override them."""
    given = flags(
        "--port",
        "7701",
        CONTRADA_SERVE_PORT="7702",
        CONTRADA_SERVE_TLS_REQUIRE_CERTIFICATE="true",
        CONTRADA_SERVE_HTTP="8080",
        CONTRADA_SERVE_JSON="1",
        CONTRADA_SERVE_VERBOSE="2",
        CONTRADA_SERVE_NEIGHBOUR="contrada://a\n  contrada://b\n",
    )
    assert given == {
        "port": 7701,
        "tls": {"require_certificate": True},
        "http": {"listen": "8080"},
        "log": {"json": True, "level": "debug"},
        "neighbours": ["contrada://a", "contrada://b"],
    }


def test_a_filter_with_spaces_is_one_value(tmp_path: Path) -> None:
    """A permission would be split into words, which are no filters, or other ones."""
    variables = {"CONTRADA_USER_ADD_PUBLISH": "a = 1\nb = 'x y'"}
    file = tmp_path / "users.toml"
    added = CliRunner().invoke(main, ["user", "add", "desk", "--users", str(file)], env=variables)
    assert added.exit_code == 0, added.output
    text = file.read_text("utf-8")
    assert "a = 1" in text
    assert "b = 'x y'" in text


def test_an_invalid_value_names_its_variable() -> None:
    """An operator would search the command line for it."""
    done = CliRunner().invoke(main, ["serve"], env={"CONTRADA_SERVE_PORT": "x"})
    assert done.exit_code == 2
    assert "(env var: 'CONTRADA_SERVE_PORT'): 'x'" in done.output


def test_a_database_with_a_password_may_be_in_a_variable() -> None:
    """A container could not get it as a secret: only arguments are seen by all users."""
    url = "postgresql://u:hunter2@h/d"  # pragma: allowlist secret
    assert flags(CONTRADA_SERVE_STORE=url)["store"] == url


@pytest.mark.parametrize("command", [["ask", "a = 1"], ["xml", "receive", "a = 1"], ["offer"]])
def test_the_former_name_of_an_address_is_understood(command: list[str]) -> None:
    """A script of an earlier version would fail, or use the broker of this machine."""
    variable = f"CONTRADA_{'_'.join(command[: 2 if command[0] == 'xml' else 1]).upper()}_AT"
    source = ["--files", str(Path(__file__).parent)] if command == ["offer"] else []
    for options, environment in ((["--at", "x"], {}), ([], {variable: "x"})):
        result = CliRunner().invoke(main, [*command, *source, *options], env=environment)
        assert "address 'x': expected contrada://" in result.stderr
        assert variable not in CliRunner().invoke(main, ["doctor"], env=environment).stdout

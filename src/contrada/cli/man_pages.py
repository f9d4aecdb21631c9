"""`write_shared_files`: the manual pages and shell completions, which the wheel has below share/.

    python -m contrada.cli.man_pages FOLDER VERSION

There is a page for each command, with its subcommands. (click-man writes none for commands that are
imported at their first use, and joins the lines of examples.)
"""

import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

import contrada.cli
from contrada.cli.option_variables import options_of

NAME: Final = "contrada"

COMPLETIONS: Final = {
    "bash": f"bash-completion/completions/{NAME}",
    "zsh": f"zsh/site-functions/_{NAME}",
    "fish": f"fish/vendor_completions.d/{NAME}.fish",
}
"""Files below share/ in which the shells look for a command of this name."""

_LITERAL: Final = "\b"
"""The first line of a paragraph that keeps its lines, as click has it."""


def write_shared_files(folder: Path, version: str) -> None:
    """Writes all files below a folder, as they are below share/ of an installation.

    Raises click.exceptions.Exit, after a message, where a library of a command is missing.
    """
    for path, text in shared_files(version):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


def shared_files(version: str) -> Iterator[tuple[str, str]]:
    """Yields the path of each file below share/, and its text."""
    main = contrada.cli.main
    context = click.Context(main, info_name=NAME, **main.context_settings)
    yield f"man/man1/{NAME}.1", _page(context, version)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None, name
        page = _page(click.Context(command, context, info_name=name), version)
        yield f"man/man1/{NAME}-{name}.1", page
    for shell, path in COMPLETIONS.items():
        made = get_completion_class(shell)
        assert made is not None, shell
        yield path, made(main, {}, NAME, f"_{NAME.upper()}_COMPLETE").source() + "\n"


def _page(context: click.Context, version: str) -> str:
    title = context.command_path.replace(" ", "-")
    lines = [
        f'.TH "{_roff(title.upper())}" 1 "" "{NAME} {version}" "User Commands"',
        '.SH "NAME"',
        f"{_roff(title)} \\- {_roff(context.command.get_short_help_str(200).rstrip('.'))}",
        '.SH "SYNOPSIS"',
        *_usage(context),
        '.SH "DESCRIPTION"',
        *_command(context),
    ]
    for each in _below(context):
        lines += [f'.SH "{_roff(each.command_path.upper())}"', *_usage(each), *_command(each)]
    if context.parent is None:
        status = (contrada.cli.__doc__ or "").partition("Exit status: ")[2]
        lines += ['.SH "EXIT STATUS"', *_text(status)]
    see = f"{NAME} help" if context.parent is None else f"{NAME}(1), {NAME} help"
    return "\n".join((*lines, '.SH "SEE ALSO"', f"{_roff(see)}\n"))


def _below(context: click.Context) -> Iterator[click.Context]:
    """Yields the subcommands on the page of a command; those of the whole have their own pages."""
    command = context.command
    if context.parent is not None and isinstance(command, click.Group):
        for name in command.list_commands(context):
            each = command.get_command(context, name)
            assert each is not None, name
            below = click.Context(each, context, info_name=name)
            yield below
            yield from _below(below)


def _usage(context: click.Context) -> list[str]:
    pieces = " ".join(context.command.collect_usage_pieces(context))
    return [f"\\fB{_roff(context.command_path)}\\fR {_roff(pieces)}"]


def _command(context: click.Context) -> Iterator[str]:
    """Yields the description, the options with their variables, and the names of subcommands."""
    command = context.command
    yield from _text(cleandoc(command.help or ""))
    for option in options_of(command):
        option.show_envvar = True
        names, text = option.get_help_record(context) or ("", "")
        yield from (".TP", f"\\fB{_roff(names)}\\fR", _roff(text))
    if context.parent is None:
        for name, (_, text) in contrada.cli.COMMANDS.items():
            yield from (".TP", f"\\fB{NAME}\\-{_roff(name)}\\fR(1)", _roff(text))


def _text(text: str) -> Iterator[str]:
    for paragraph in filter(None, map(str.strip, text.split("\n\n"))):
        lines = [_roff(each) for each in paragraph.split("\n") if each != _LITERAL]
        yield ".PP"
        yield from [".nf", *lines, ".fi"] if paragraph.startswith(_LITERAL) else lines


def _roff(text: str) -> str:
    """Returns a text of one line as roff source that shows it unchanged."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    escaped = escaped.replace("`", "\\(ga").replace('"', "\\(dq")
    escaped = "".join(each if each.isascii() else f"\\[u{ord(each):04X}]" for each in escaped)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


if __name__ == "__main__":
    write_shared_files(Path(sys.argv[1]), sys.argv[2])

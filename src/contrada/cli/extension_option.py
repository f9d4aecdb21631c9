"""The option `--extension module:Class`, which brings operators of one's own.

A command that has it also loads the extensions that installed packages bring.
"""

from typing import Any, Final

import click

from contrada.model.extensions.extension_loader import load, load_entry_points


def _load(ctx: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> Any:
    load_entry_points()
    for name in names:
        load(name)


# Loaded while the arguments are read, so before any filter is.
extension_option: Final = click.option(
    "--extension",
    metavar="MODULE:CLASS",
    multiple=True,
    expose_value=False,
    callback=_load,
    help="Load operators of one's own; may be repeated. Runs code of the module.",
)

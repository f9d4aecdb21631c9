"""The option `--extension MODULE:CLASS`, which loads operators of a user's module.

A command with this option also loads the extensions of installed packages.
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
    help="Load operators from a module; repeatable. Runs the module's code.",
)

"""`contrada asyncapi`: the document of an app."""

import json
import sys

import click

from contrada.app import App
from contrada.cli import shared_options as options
from contrada.errors import ExtensionError, InputError
from contrada.integrations.asyncapi import asyncapi_of
from contrada.model.extensions.extended_type import object_named


@click.command()
@click.argument("place", metavar="MODULE:APP")
@options.text("--title", None, "Title of the document; default: MODULE.", default="")
@options.text("--app-version", "TEXT", "Version of the application.", default="0.1.0")
@options.extension_option
def asyncapi(place: str, title: str, app_version: str) -> None:
    """Print the handlers and repliers of a `ct.App` as AsyncAPI 3.0, in JSON.

    The module is imported, from the current folder too; the app is not run.

    \b
    contrada asyncapi desk:app --title "Trading desk" > desk.asyncapi.json
    """  # noqa: D301 - click reads the escape
    sys.path.insert(0, "")
    try:
        app = object_named(place)
    except ExtensionError as error:
        raise InputError(place, error.reason.replace("module:Class", "MODULE:APP")) from None
    if not isinstance(app, App):
        raise InputError(place, f"found {type(app).__name__}, expected a contrada.App")
    document = asyncapi_of(app, title=title or place.partition(":")[0], version=app_version)
    click.echo(json.dumps(document, indent=2))

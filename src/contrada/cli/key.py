"""`contrada key`: keys that sign notifications."""

from pathlib import Path

import click

from contrada.cli import shared_options as options
from contrada.service.security import signing_keys

_KEY_FILE = click.argument("path", metavar="FILE", type=options.NEW_FILE)


@click.group()
def key() -> None:
    """Ed25519 keys, with which publishers sign notifications and subscribers verify them.

    \b
    contrada key make desk.pem
    echo "desk = \\"$(contrada key show desk.pem)\\"" >> keys.toml
    contrada pub --publisher desk --sign desk.pem symbol=DIS price=61.5
    contrada sub "symbol = 'DIS'" --verify keys.toml
    """  # noqa: D301 - click reads the escape


@key.command()
@_KEY_FILE
def make(path: Path) -> None:
    """Create a private key in FILE, and print the public key. Only its owner can read FILE.

    FILE is PEM, as from `openssl genpkey -algorithm ed25519`. An existing key is not overwritten.
    """
    made = signing_keys.new_private_key()
    signing_keys.write_private_key(made, path)
    click.echo(signing_keys.public_text(made))


@key.command()
@_KEY_FILE
def show(path: Path) -> None:
    """Print the public key of the private key in FILE, for --verify."""
    click.echo(signing_keys.public_text(signing_keys.private_key_in(path)))

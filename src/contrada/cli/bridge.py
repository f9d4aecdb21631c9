"""`contrada bridge`: a bridge between another messaging system and a broker."""

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from contrada.cli import shared_options as options
from contrada.cli.client_command import Approach, approach_options, connect, run
from contrada.cli.log_output import log
from contrada.errors import InputError
from contrada.integrations.bridges.bridge import Bridge
from contrada.integrations.bridges.bridge_peer import BridgePeer, PeerSettings
from contrada.integrations.bridges.record_translation import RecordTranslation, TextTemplate
from contrada.net.wire.tls import Tls
from contrada.service import Service
from contrada.service.requests import filters_of
from contrada.service.security.secret_files import read_secret

PEERS: Final = {
    "nats": ("nats_peer", "NatsPeer", "NATS_ADDRESS"),
    "jetstream": ("nats_peer", "JetStreamPeer", "NATS_ADDRESS"),
    "redis": ("redis_peer", "RedisPeer", "REDIS_ADDRESS"),
}
"""The module of each kind below `integrations/bridges`, its peer and the form of its addresses."""

PASSWORD_VARIABLE: Final = "CONTRADA_BRIDGE_PASSWORD"
"""Environment variable with the password, used without --password-file."""

PASSWORD_BYTES_MAX: Final = 65_536
"""Bytes of a file with a password. Beyond it: InputError."""


@click.command()
@click.argument("kind", type=click.Choice(list(PEERS)))
@click.option(
    "--broker", required=True, metavar="ADDRESS", help="The other system: KIND://[USER@]HOST."
)
@click.option("--to", default=options.ADDRESS_DEFAULT, metavar="ADDRESS", help="The broker.")
@options.repeated("--in sources", "SOURCE", "Source of incoming records; repeatable.")
@options.text("--out", "FILTER", "Contrada filter for outgoing notifications.")
@click.option(
    "--topic",
    default="{topic}",
    metavar="TEMPLATE",
    help="Topic of outgoing records; {name} is an attribute's value.",
)
@click.option("--name", help="Name of this bridge on both sides.  [default: contrada-KIND]")
@click.option("--origin", help="Name of the other system in contrada.origin.  [default: KIND]")
@options.text(
    "--dead-letters", "NAME", "Topic there, and durable subscription here, of refused ones."
)
@options.typed(
    "--password-file",
    options.NEW_FILE,
    "FILE",
    f"Password of USER; default: the variable {PASSWORD_VARIABLE}.",
)
@options.file("--peer-authority", "PEM", "Trusted authority for the other system.")
@options.file("--peer-certificate", "PEM", "Certificate to present to the other system.")
@options.file("--peer-key", "PEM", "Key of that certificate, if in another file.")
@options.flag("--stats", "Print the counts at the end on standard error.")
@options.flag("-v --verbose", "Log connections too.")
@approach_options
def bridge(
    kind: str, broker: str, to: str, out: str | None, topic: str, approach: Approach, **given: Any
) -> None:
    """Bridge records of another messaging system and notifications, until Ctrl-C.

    \b
    KIND       SOURCE and topic   in, out
    nats       subject            at most once, sent to the server
    jetstream  subject            at least once, at least once
    redis      stream             at least once, at least once

    An incoming record has the attributes topic and contrada.origin, its headers, and the members of
    its payload, if that is a JSON object; another payload is the body. An outgoing record is a JSON
    object of the attributes, or the body with the attributes as headers. No record returns to its
    origin.

    At least once: a record is acknowledged when it is published, certified; a notification, from
    the durable subscription NAME, when the other system has confirmed it. Prints a line when it is
    ready; reconnects; SIGTERM ends it with status 0, Ctrl-C with 130.

    \b
    contrada bridge nats --broker nats://10.0.0.9 --in 'sensors.>'
    contrada bridge jetstream --broker tls://desk@10.0.0.9 --password-file desk.password \\
        --in 'orders.*' --out "alarm any" --topic 'alarms.{place}'
    """  # noqa: D301 - click reads the escape
    if not given["sources"] and out is None:
        raise click.UsageError("give a direction: --in SOURCE, --out FILTER, or both")
    peer_type, form = _peer_of(kind)
    address = form.parse(broker, _password(given["password_file"]))
    files = given["peer_certificate"], given["peer_key"], given["peer_authority"]
    if any(files) and not address.is_tls:
        raise click.UsageError(f"certificates are for {form.schemes[1]}://, and this is {address}")
    tls = Tls(*files) if address.is_tls else None
    name = given["name"] or f"contrada-{kind}"
    peer = peer_type(PeerSettings(address, name, given["sources"], tls))
    translation = RecordTranslation(
        kind, given["origin"] or kind, TextTemplate(topic), peer.has_fields
    )
    relay: dict[str, Any] = {"dead_letters": given["dead_letters"] or ""}
    relay["out"] = None if out is None else filters_of(out)
    log(1 if given["verbose"] else 0, as_json=False)
    service = connect(to, approach, publisher=name)
    run(_relay(service, peer, translation, given["stats"], relay), is_endless=True)


async def _relay(
    service: Service,
    peer: BridgePeer,
    translation: RecordTranslation,
    prints_counts: bool,
    options: Mapping[str, Any],
) -> None:
    async with service:
        relay = Bridge(service, peer, translation, **options)
        sides = f"{peer.settings.address} and {service.connection.address}"
        try:
            await relay.run(lambda: click.echo(sides))
        finally:
            for key, count in sorted({**relay.counts, "in, dropped": peer.dropped}.items()):
                if count and prints_counts:
                    click.echo(f"{count} {key}", err=True)


def _peer_of(kind: str) -> tuple[Any, Any]:
    module, peer, form = PEERS[kind]
    found = import_module(f"contrada.integrations.bridges.{module}")
    return getattr(found, peer), getattr(found, form)


def _password(path: Path | None) -> str:
    """Returns the password of the file, or of the environment. Raises InputError."""
    if path is None:
        return os.environ.get(PASSWORD_VARIABLE, "")
    content = read_secret(path, PASSWORD_BYTES_MAX)
    if len(content) > PASSWORD_BYTES_MAX:
        raise InputError(str(path), f"expected a password of at most {PASSWORD_BYTES_MAX} bytes")
    try:
        return content.decode().strip("\r\n")
    except UnicodeDecodeError:
        raise InputError(str(path), "expected a password") from None

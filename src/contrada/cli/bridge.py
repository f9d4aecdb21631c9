"""`contrada bridge`: a bridge between another messaging system and a broker."""

import os
import re
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from contrada.cli import shared_options as options
from contrada.cli.client_command import Approach, approach_options, connect, run
from contrada.cli.log_output import log
from contrada.errors import InputError
from contrada.integrations.bridges.bridge import IN, OUT, Bridge
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
    "amqp": ("amqp_peer", "AmqpPeer", "AMQP_ADDRESS"),
    "kafka": ("kafka_peer", "KafkaPeer", "KAFKA_ADDRESS"),
    "mqtt": ("mqtt_peer", "MqttPeer", "MQTT_ADDRESS"),
}
"""The module of each kind below `integrations/bridges`, its peer and the form of its addresses."""

ONE_KIND: Final = {"exchange": "amqp", "key": "kafka", "sasl": "kafka", "retain": "mqtt"}
"""Options that one kind has."""

PASSWORD_VARIABLE: Final = "CONTRADA_BRIDGE_PASSWORD"
"""Environment variable with the password, used without --password-file."""

PASSWORD_BYTES_MAX: Final = 65_536
"""Bytes of a file with a password. Beyond it: InputError."""


@click.command()
@click.argument("kind", type=click.Choice([*PEERS]), metavar="KIND")
@click.option(
    "--broker", required=True, metavar="ADDRESS", help="The other system: KIND://[USER@]HOST."
)
@options.broker_option
@options.repeated("--in sources", "SOURCE", "Source of incoming records; repeatable.")
@options.text("--out", "FILTER", "Contrada filter for outgoing notifications.")
@click.option(
    "--topic",
    default="{topic}",
    metavar="TEMPLATE",
    help="Topic of outgoing records; {name} is an attribute's value.",
)
@options.text("--exchange", "NAME", "Exchange of outgoing messages (amqp); without it, queues.")
@options.text("--key", "TEMPLATE", "Key of outgoing records (kafka), such as '{symbol}'.")
@click.option(
    "--sasl",
    type=click.Choice(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
    help="Authentication of USER (kafka).  [default: PLAIN]",
)
@options.flag("--retain", "Set the retain flag of outgoing messages (mqtt).")
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
    KIND       SOURCE                        topic         in, out
    nats       subject                       subject       at most once, sent to the server
    jetstream  subject                       subject       at least once, at least once
    redis      stream                        stream        at least once, at least once
    amqp       queue, EXCHANGE/BINDING-KEY   routing key   at least once, at least once
    kafka      topic, ^PATTERN               topic         at least once, at least once
    mqtt       topic filter                  topic         at least once, at least once

    An incoming record has the attributes topic and contrada.origin, its headers, and the members of
    its payload, if that is a JSON object; another payload is the body. An outgoing record is a JSON
    object of the attributes, or the body with the attributes as headers. No record returns to its
    origin.

    A notification waits, and is sent again, while the other system has no place for it or permits
    none. A record that one side refuses for itself, such as one too large, is counted, logged with
    its topic or position, and lost unless there are --dead-letters.

    At least once: a record is acknowledged when it is published, certified; a notification, from
    the durable subscription NAME, when the other system has confirmed it. Prints a line when it is
    ready; reconnects; SIGTERM ends it with status 0, Ctrl-C with 130.

    \b
    contrada bridge nats --broker nats://10.0.0.9 --in 'sensors.>'
    contrada bridge jetstream --broker tls://desk@10.0.0.9 --password-file desk.password \\
        --in 'orders.*' --out "alarm any" --topic 'alarms.{place}'
    contrada bridge amqp --broker amqp://10.0.0.9 --in orders --out "alarm any" \\
        --exchange amq.topic --topic 'alarms.{place}'
    contrada bridge kafka --broker kafka://10.0.0.9 --in orders --out "alarm any" \\
        --topic alarms --key '{place}'
    contrada bridge mqtt --broker mqtt://10.0.0.9 --in 'sensors/#'
    """  # noqa: D301 - click reads the escape
    if not given["sources"] and out is None:
        raise click.UsageError("give a direction: --in SOURCE, --out FILTER, or both")
    for option, only in ONE_KIND.items():
        if given[option] and kind != only:
            raise click.UsageError(f"--{option} is for {only}, and this is {kind}")
    name, origin = given["name"] or f"contrada-{kind}", given["origin"] or kind
    peer = _peer(kind, broker, name, given)
    key = TextTemplate(given["key"]) if given["key"] else None
    translation = RecordTranslation(kind, origin, peer.template(topic), peer.has_fields, key)
    wanted = None if out is None else filters_of(out)
    log(1 if given["verbose"] else 0, as_json=False)
    service = connect(to, approach, publisher=name)
    dead_letters = given["dead_letters"] or ""
    bridge = Bridge(service, peer, translation, out=wanted, dead_letters=dead_letters)
    run(_run(bridge, service, given["stats"]), is_endless=True)


def _peer(kind: str, broker: str, name: str, given: Mapping[str, Any]) -> BridgePeer:
    module, peer_name, form_name = PEERS[kind]
    found = import_module(f"contrada.integrations.bridges.{module}")
    address = getattr(found, form_name).parse(broker, _password(given["password_file"]))
    settings = PeerSettings(
        address,
        name,
        given["sources"],
        _tls(address, given),
        exchange=given["exchange"] or "",
        mechanism=given["sasl"] or "PLAIN",
        retain=given["retain"],
    )
    peer: BridgePeer = getattr(found, peer_name)(settings)
    return peer


async def _run(bridge: Bridge, service: Service, prints_counts: bool) -> None:
    async with service:
        try:
            await bridge.run(
                lambda: click.echo(f"{bridge.address} and {service.connection.address}")
            )
        finally:
            counts = {IN: 0, OUT: 0, **(bridge.counts + Counter({"in, dropped": bridge.dropped}))}
            for key, count in sorted(counts.items()) if prints_counts else ():
                click.echo(f"{count} {key}", err=True)


def _tls(address: Any, given: Mapping[str, Any]) -> Tls | None:
    """Returns the files of TLS, or None without TLS. Raises UsageError for files without it."""
    files = given["peer_certificate"], given["peer_key"], given["peer_authority"]
    if any(files) and not address.is_tls:
        raise click.UsageError(f"certificates are for an address with TLS, and this is {address}")
    return Tls(*files) if address.is_tls else None


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


# --- the former name of `contrada bridge mqtt` ----------------------------------------------------

FORMER_VARIABLE: Final = "CONTRADA_MQTT_PASSWORD"

_FORMER_OPTION: Final = re.compile(r"^--mqtt-")


@click.command(
    add_help_option=False, context_settings={"ignore_unknown_options": True}, options_metavar=""
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def mqtt(ctx: click.Context, options: tuple[str, ...]) -> None:
    """Bridge topics of MQTT: the former name of `contrada bridge mqtt`.

    Its options --mqtt-authority, --mqtt-certificate and --mqtt-key are --peer-… there, and the
    variable CONTRADA_MQTT_PASSWORD is CONTRADA_BRIDGE_PASSWORD. It prints the counts at the end.
    """
    click.echo("contrada mqtt is contrada bridge mqtt now", err=True)
    if FORMER_VARIABLE in os.environ:
        os.environ.setdefault(PASSWORD_VARIABLE, os.environ[FORMER_VARIABLE])
    renamed = [_FORMER_OPTION.sub("--peer-", each) for each in options]
    root = ctx.find_root()
    assert isinstance(root.command, click.Group)
    command = root.command.get_command(root, "bridge")  # With its environment variables.
    assert command is not None
    with command.make_context("bridge", ["mqtt", "--stats", *renamed], root) as inner:
        command.invoke(inner)

"""`contrada mqtt`: a bridge between topics of MQTT and a broker."""

import os
import ssl
from pathlib import Path
from typing import Any, Final

import click

from contrada.cli.async_command import run
from contrada.cli.log_output import log
from contrada.cli.pub import ADDRESS_DEFAULT
from contrada.cli.tls_options import PEM, approach_options
from contrada.connections import connect
from contrada.errors import InputError
from contrada.integrations.mqtt.mqtt_bridge import MqttBridge
from contrada.integrations.mqtt.mqtt_messages import TopicTemplate
from contrada.integrations.mqtt.mqtt_session import MqttAddress, MqttSession, parse_mqtt_address
from contrada.net.wire.endpoint import ConnectOptions
from contrada.net.wire.tls import Tls
from contrada.service import Service
from contrada.service.requests import filters_of

NAME_DEFAULT: Final = "contrada-mqtt"

DROPPED: Final = "from MQTT, dropped"

PASSWORD_VARIABLE: Final = "CONTRADA_MQTT_PASSWORD"
"""The environment variable that holds the password, where no file is named."""


@click.command()
@click.option(
    "--broker", required=True, metavar="ADDRESS", help="The MQTT broker: mqtt(s)://[USER@]HOST."
)
@click.option("--to", default=ADDRESS_DEFAULT, show_default=True, metavar="ADDRESS")
@click.option(
    "--in", "filters", multiple=True, metavar="TOPICS", help="A filter of MQTT: what comes in."
)
@click.option("--out", metavar="FILTER", help="A filter of Contrada: what goes out.")
@click.option(
    "--topic",
    default="{topic}",
    show_default=True,
    metavar="TEMPLATE",
    help="The topic of what goes out; {name} is an attribute's value.",
)
@click.option("--retain", is_flag=True, help="What goes out is retained by its topic.")
@click.option(
    "--name",
    default=NAME_DEFAULT,
    show_default=True,
    help="What tells this bridge from others, at both sides.",
)
@click.option(
    "--password-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"Of the USER; else the variable {PASSWORD_VARIABLE} has it, if it is set.",
)
@click.option("--mqtt-authority", type=PEM, metavar="PEM", help="Whom to trust at the MQTT broker.")
@click.option("--mqtt-certificate", type=PEM, metavar="PEM", help="Who this side is there.")
@click.option("--mqtt-key", type=PEM, metavar="PEM", help="The key of that, if not in its file.")
@click.option("-v", "--verbose", is_flag=True, help="Log connections, too.")
@approach_options
def mqtt(
    broker: str,
    to: str,
    out: str | None,
    topic: str,
    name: str,
    password_file: Path | None,
    mqtt_authority: str | None,
    mqtt_certificate: str | None,
    mqtt_key: str | None,
    verbose: bool,
    approach: ConnectOptions,
    **options: Any,
) -> None:
    """Carry messages of an MQTT 5 broker in, and notifications out, until Ctrl-C.

    A message that comes in has the attribute topic, its user properties, and what its payload says,
    if that is a JSON object; else the payload is the body. What goes out is a JSON object of its
    attributes, or its body with the attributes as user properties. Nothing goes back to where it
    came from.

    Both ways with QoS 1: a message is acknowledged when it is published, certified; a notification,
    from the durable subscription NAME, when the MQTT broker has it. So a bridge that was away goes
    on where it was, under the same --name. What cannot go over is told of, and counted. Prints a
    line when it is ready; SIGTERM ends it with status 0, Ctrl-C with 130.

    \b
    contrada mqtt --broker mqtt://10.0.0.9 --in 'sensors/#'
    contrada mqtt --broker mqtt://10.0.0.9 --out "alarm any" --topic 'alarms/{place}' --retain
    contrada mqtt --broker mqtts://desk@example.org --password-file desk.password \\
        --to contrada://10.0.0.7 --in 'sensors/+/temperature' --out "topic prefix 'commands/'"
    contrada sub "topic prefix 'sensors/' and temperature > 30"
    """  # noqa: D301 - click reads the escape
    if not options["filters"] and out is None:
        raise click.UsageError("say what goes over: --in TOPICS, --out FILTER, or both")
    has_tls = mqtt_certificate or mqtt_key or mqtt_authority
    place = parse_mqtt_address(broker, _password(password_file))
    if has_tls and not place.is_tls:
        raise click.UsageError(f"certificates are for mqtts://, and this is {place}")
    tls = Tls(mqtt_certificate, mqtt_key, mqtt_authority).client_context() if place.is_tls else None
    # What is wrong is found out before connecting.
    options |= {"topic": TopicTemplate(topic), "out": None if out is None else filters_of(out)}
    log(1 if verbose else 0, as_json=False)
    service = connect(to, publisher=name, tls=approach.tls, token=approach.token)
    run(_carry(place, service, tls, name=name, **options), is_endless=True)


async def _carry(
    place: MqttAddress,
    service: Service,
    tls: ssl.SSLContext | None,
    *,
    name: str,
    filters: tuple[str, ...],
    **options: Any,
) -> None:
    session = MqttSession(place, name, filters, tls=tls)
    async with service:
        await session.open()
        bridge = MqttBridge(service, session, name=name, filters=filters, **options)
        try:
            await bridge.run(lambda: _tell_ready(place, service))
        finally:
            await session.aclose()
            for what, count in sorted({**bridge.counts, DROPPED: session.dropped}.items()):
                if count:
                    click.echo(f"{count} {what}", err=True)


def _tell_ready(place: MqttAddress, service: Service) -> None:
    click.echo(f"{place} and {service.connection.address}")


def _password(path: Path | None) -> str:
    """What a file, or else the environment, has. Raises InputError."""
    if path is None:
        return os.environ.get(PASSWORD_VARIABLE, "")
    try:
        return path.read_text("utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "expected a password"
        raise InputError(str(path), reason) from None

"""`contrada mqtt`: a bridge between topics of MQTT and a broker."""

import os
import ssl
from pathlib import Path
from typing import Any, Final

import click

from contrada.cli import shared_options as options
from contrada.cli.client_command import Approach, approach_options, connect, run
from contrada.cli.log_output import log
from contrada.errors import InputError
from contrada.integrations.bridges.mqtt_bridge import MqttBridge
from contrada.integrations.bridges.mqtt_messages import TopicTemplate
from contrada.integrations.bridges.mqtt_session import MqttAddress, MqttSession, parse_mqtt_address
from contrada.net.wire.tls import Tls
from contrada.service import Service
from contrada.service.requests import filters_of

NAME_DEFAULT: Final = "contrada-mqtt"

DROPPED: Final = "from MQTT, dropped"

PASSWORD_VARIABLE: Final = "CONTRADA_MQTT_PASSWORD"
"""Environment variable with the password, used without --password-file."""


@click.command()
@click.option(
    "--broker", required=True, metavar="ADDRESS", help="The MQTT broker: mqtt(s)://[USER@]HOST."
)
@click.option("--to", default=options.ADDRESS_DEFAULT, metavar="ADDRESS", help="The broker.")
@options.repeated("--in filters", "TOPICS", "MQTT topic filter for incoming messages.")
@options.text("--out", "FILTER", "Contrada filter for outgoing notifications.")
@click.option(
    "--topic",
    default="{topic}",
    metavar="TEMPLATE",
    help="Topic of outgoing messages; {name} is an attribute's value.",
)
@options.flag("--retain", "Set the retain flag of outgoing messages.")
@click.option("--name", default=NAME_DEFAULT, help="Name of this bridge at both brokers; unique.")
@options.typed(
    "--password-file",
    options.NEW_FILE,
    "FILE",
    f"Password of USER; default: the variable {PASSWORD_VARIABLE}.",
)
@options.file("--mqtt-authority", "PEM", "Trusted authority for the MQTT broker.")
@options.file("--mqtt-certificate", "PEM", "Certificate to present to the MQTT broker.")
@options.file("--mqtt-key", "PEM", "Key of that certificate, if in another file.")
@options.flag("-v --verbose", "Log connections too.")
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
    approach: Approach,
    **given: Any,
) -> None:
    """Bridge messages of an MQTT 5 broker and notifications, until Ctrl-C.

    An incoming message has the attribute topic, its user properties, and the members of its
    payload, if that is a JSON object; another payload is the body. An outgoing message is a JSON
    object of the attributes, or the body with the attributes as user properties. No message returns
    to its origin.

    Both directions use QoS 1: a message is acknowledged when it is published, certified; a
    notification, from the durable subscription NAME, when the MQTT broker has it. So a bridge
    continues after an interruption, under the same --name. Messages that cannot be converted are
    reported and counted. Prints a line when it is ready; SIGTERM ends it with status 0, Ctrl-C with
    130.

    \b
    contrada mqtt --broker mqtt://10.0.0.9 --in 'sensors/#'
    contrada mqtt --broker mqtt://10.0.0.9 --out "alarm any" --topic 'alarms/{place}' --retain
    contrada mqtt --broker mqtts://desk@example.org --password-file desk.password \\
        --to contrada://10.0.0.7 --in 'sensors/+/temperature' --out "topic prefix 'commands/'"
    contrada sub "topic prefix 'sensors/' and temperature > 30"
    """  # noqa: D301 - click reads the escape
    if not given["filters"] and out is None:
        raise click.UsageError("give a direction: --in TOPICS, --out FILTER, or both")
    has_tls = mqtt_certificate or mqtt_key or mqtt_authority
    place = parse_mqtt_address(broker, _password(password_file))
    if has_tls and not place.is_tls:
        raise click.UsageError(f"certificates are for mqtts://, and this is {place}")
    tls = Tls(mqtt_certificate, mqtt_key, mqtt_authority).client_context() if place.is_tls else None
    # Raises for wrong options before connecting.
    given |= {"topic": TopicTemplate(topic), "out": None if out is None else filters_of(out)}
    log(1 if verbose else 0, as_json=False)
    service = connect(to, approach, publisher=name)
    run(_carry(place, service, tls, name=name, **given), is_endless=True)


async def _carry(
    place: MqttAddress,
    service: Service,
    tls: ssl.SSLContext | None,
    *,
    name: str,
    filters: tuple[str, ...],
    **given: Any,
) -> None:
    session = MqttSession(place, name, filters, tls=tls)
    async with service:
        await session.open()
        bridge = MqttBridge(service, session, name=name, filters=filters, **given)
        try:
            await bridge.run(lambda: click.echo(f"{place} and {service.connection.address}"))
        finally:
            await session.aclose()
            for name, count in sorted({**bridge.counts, DROPPED: session.dropped}.items()):
                if count:
                    click.echo(f"{count} {name}", err=True)


def _password(path: Path | None) -> str:
    """Returns the password of the file, or of the environment. Raises InputError."""
    if path is None:
        return os.environ.get(PASSWORD_VARIABLE, "")
    try:
        return path.read_text("utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "expected a password"
        raise InputError(str(path), reason) from None

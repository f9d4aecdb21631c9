"""`MqttBridge`: relays messages between an MQTT 5 broker and a service, in both directions.

    MQTT  ==receive==> notifications ==publish==> service     then acknowledged to MQTT
    MQTT  <==PUBACK=== messages <==durable subscription===    then acknowledged to the service

Delivery is at least once in both directions: a message of QoS 1, or a durable notification, is
acknowledged only when the other side has it. A message that has no topic, or that one side refuses,
is counted, logged and acknowledged, so that it does not block the messages behind it. No message
returns to the side of its origin (see `mqtt_messages`).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from paho.mqtt.client import topic_matches_sub

from contrada import errors
from contrada.integrations.bridges import mqtt_messages as messages
from contrada.integrations.bridges.mqtt_session import MqttLimits, MqttSession, ReceivedMessage
from contrada.model import Filter, FilterSet, Notification
from contrada.model.syntax import parse_filter
from contrada.service import DurableSubscription, Service
from contrada.service.backoff import Backoff
from contrada.service.clock import wall_clock_us
from contrada.service.loop_guards import first_of

_TEMPORARY: Final = (errors.ConnectionFailedError, errors.CannotPublishError, errors.StoreError)
"""Errors after which the publication is retried."""

IN: Final = "from MQTT"
OUT: Final = "to MQTT"
CIRCLE: Final = "had come from here"

UnacknowledgedSends: TypeAlias = "asyncio.Queue[tuple[int, asyncio.Future[None]]]"
"""Positions of sent notifications, each with the future of its acknowledgement by MQTT."""

_LOG: Final = logging.getLogger(__name__)


class MqttBridge:
    """Relays messages while `run` runs; `counts` has relayed and refused ones by direction."""

    def __init__(
        self,
        service: Service,
        session: MqttSession,
        *,
        out: Filter | FilterSet | None = None,
        name: str,
        topic: messages.TopicTemplate,
        retain: bool = False,
        filters: Sequence[str] = (),
        limits: MqttLimits = MqttLimits(),
    ) -> None:
        """The caller opens and closes `service` and `session`. `name` is that of the durable
        subscription to `out`. Messages that match none of `filters` are left out: the session may
        still have subscriptions of an earlier run.
        """
        self._service = service
        self._session = session
        self._out = None if out is None else out & parse_filter(f"{messages.QOS} absent")
        self._name = name
        self._topic = topic
        self._retain = retain
        # The topic filter of a shared subscription is the end of `$share/group/filter`.
        self._filters = [
            each.split("/", 2)[2] if each.startswith("$share/") else each for each in filters
        ]
        self._limits = limits
        self.counts: Counter[str] = Counter()

    async def run(self, opened: Callable[[], object] = lambda: None) -> None:
        """Relays until one side ends for good; calls `opened` when all subscriptions are in force.
        Raises ConnectionFailedError, and as `Service.subscribe`.
        """
        if self._out is None:
            opened()
            await self._relay_in()
            return
        subscription = self._service.subscribe(
            self._out, durable=self._name, auto_acknowledge=False
        )
        async with subscription as events:
            opened()
            sent: UnacknowledgedSends = asyncio.Queue(self._limits.mqtt_in_flight_max)
            relay_out, acknowledge = self._relay_out(events, sent), self._acknowledge(events, sent)
            await first_of(self._relay_in(), relay_out, acknowledge)

    # --- from MQTT ----------------------------------------------------------------------------

    async def _relay_in(self) -> None:
        while True:
            received = await self._session.receive(self._limits.mqtt_batch_max)
            await self._publish([each for each in map(self._notification, received) if each])
            for message in received:
                self._session.acknowledge(message)

    def _notification(self, received: ReceivedMessage) -> Notification | None:
        message = received.message
        if message.is_ours:
            self.counts[f"{IN}, {CIRCLE}"] += 1
            return None
        if not any(topic_matches_sub(each, message.topic) for each in self._filters):
            self.counts[f"{IN}, not asked for"] += 1
            return None
        try:
            return messages.notification_of(message)
        except errors.ContradaError as error:
            self._count_refusal(IN, message.topic, error)
            return None

    async def _publish(self, notifications: list[Notification]) -> None:
        """Publishes all in order; leaves out refused ones, and retries after temporary errors."""
        at_once, backoff = len(notifications), Backoff()
        while notifications:
            try:
                done = await self._service.publish_batch(notifications[:at_once])
            except _TEMPORARY as error:
                if self._service.connection.state == "closed":
                    raise
                _LOG.warning("messages from MQTT wait: %(reason)s", {"reason": error})
                done = getattr(error, "published", None) or 0
                await asyncio.sleep(backoff.next_s())
            except errors.ServiceClosedError:
                raise
            except errors.ContradaError as error:
                done = getattr(error, "published", None) or 0
                if at_once == 1 and not done:
                    self._count_refusal(IN, str(notifications.pop(0)[messages.TOPIC]), error)
                at_once = 1  # One by one, so that the error belongs to one message.
            self.counts[IN] += done
            notifications = notifications[done:]

    # --- to MQTT ------------------------------------------------------------------------------

    async def _relay_out(
        self, events: DurableSubscription[Notification], sent: UnacknowledgedSends
    ) -> None:
        async for record in events:
            await sent.put((record.position, self._send(record.item)))

    def _send(self, notification: Notification) -> "asyncio.Future[None]":
        now_us = wall_clock_us()
        try:
            message = messages.message_of(
                notification, self._topic, retain=self._retain, now_us=now_us
            )
        except errors.ContradaError as error:
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed
        return self._session.send(message)

    async def _acknowledge(
        self, events: DurableSubscription[Notification], sent: UnacknowledgedSends
    ) -> None:
        """Acknowledges notifications that the MQTT broker has, in batches where possible."""
        while True:
            due = [await sent.get()]
            while not sent.empty():
                due.append(sent.get_nowait())
            for position, future in due:
                try:
                    await future
                    self.counts[OUT] += 1
                except errors.ConnectionFailedError:
                    raise
                except errors.ContradaError as error:
                    self._count_refusal(OUT, str(position), error)
            await events.acknowledge(*(position for position, _ in due))

    def _count_refusal(self, direction: str, name: str, error: errors.ContradaError) -> None:
        self.counts[f"{direction}, refused"] += 1
        fields = {"way": direction, "kind": name, "reason": error}
        _LOG.warning("%(way)s, %(kind)s: %(reason)s", fields)

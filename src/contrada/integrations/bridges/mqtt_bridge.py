"""`MqttBridge`: relays messages between an MQTT 5 broker and a service, in both directions.

    MQTT  ==receive==> notifications ==publish==> service     then acknowledged to MQTT
    MQTT  <==PUBACK=== messages <==durable subscription===    then acknowledged to the service

Delivery is at least once in both directions: a message of QoS 1, or a durable notification, is
acknowledged only when the other side has it. A message that has no topic, or that one side refuses,
is counted, logged and acknowledged, so that it does not block the messages behind it. One that MQTT
does not permit now is sent again, with growing waits. No message returns to the side of its origin
(see `record_translation`).
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from paho.mqtt.client import topic_matches_sub

from contrada import errors
from contrada.delivery.retention import Retention
from contrada.integrations.bridges import mqtt_messages as messages
from contrada.integrations.bridges.bridge import CIRCLE, IN, OUT, count_refusal, publish_all
from contrada.integrations.bridges.bridge_peer import RETRY_S_MAX
from contrada.integrations.bridges.mqtt_session import (
    MqttAddress,
    MqttLimits,
    MqttSession,
    ReceivedMessage,
)
from contrada.integrations.bridges.record_translation import RecordTranslation
from contrada.model import Filter, FilterSet, Notification
from contrada.service import DurableSubscription, Service
from contrada.service.clock import wall_clock_us
from contrada.service.loop_guards import first_of

UNWANTED: Final = f"{IN}, not asked for"

UnacknowledgedSends: TypeAlias = "asyncio.Queue[tuple[int, asyncio.Future[None]]]"
"""Positions of sent notifications, each with the future of its acknowledgement by MQTT."""


class MqttBridge:
    """Relays messages while `run` runs; `counts` has relayed and refused ones by direction."""

    def __init__(
        self,
        service: Service,
        session: MqttSession,
        translation: RecordTranslation,
        *,
        out: Filter | FilterSet | None = None,
        name: str,
        retain: bool = False,
        filters: Sequence[str] = (),
        limits: MqttLimits = MqttLimits(),
    ) -> None:
        """The caller opens and closes `service` and `session`; `translation` is that of
        `mqtt_translation`. `name` is that of the durable
        subscription to `out`. Messages that match none of `filters` are left out: the session may
        still have subscriptions of an earlier run.
        """
        self._service = service
        self._session = session
        self._translation = translation
        self._out = None if out is None else translation.outgoing(out)
        self._name = name
        self._retain = retain
        # The topic filter of a shared subscription is the end of `$share/group/filter`.
        self._filters = [
            each.split("/", 2)[2] if each.startswith("$share/") else each for each in filters
        ]
        self._limits = limits
        self.counts: Counter[str] = Counter()

    @property
    def address(self) -> MqttAddress:
        """The address of the MQTT broker."""
        return self._session.address

    @property
    def dropped(self) -> int:
        """The number of messages of QoS 0 that exceeded the queue."""
        return self._session.dropped

    async def run(self, opened: Callable[[], object] = lambda: None) -> None:
        """Relays until one side ends for good; calls `opened` when all subscriptions are in force.
        Raises ConnectionFailedError, and as `Service.subscribe`.
        """
        if self._out is None:
            opened()
            await self._relay_in()
            return
        subscription = self._service.subscribe(
            self._out,
            durable=self._name,
            auto_acknowledge=False,
            retention=Retention(backoff_s=self._limits.mqtt_retry_s, backoff_s_max=RETRY_S_MAX),
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
            pairs = [pair for pair in map(self._pair, received) if pair is not None]
            await publish_all(self._service, pairs, self._refuse, self.counts, self.address)
            for message in received:
                self._session.acknowledge(message)

    def _pair(
        self, received: ReceivedMessage
    ) -> tuple[ReceivedMessage, Notification | Exception] | None:
        """Returns a message with its notification or why there is none; None for one from here, or
        for none of the filters.
        """
        message = received.message
        if message.is_ours:
            self.counts[CIRCLE] += 1
            return None
        if not any(topic_matches_sub(each, message.topic) for each in self._filters):
            self.counts[UNWANTED] += 1
            return None
        try:
            return received, messages.notification_of(message, self._translation)
        except errors.ContradaError as error:
            return received, error

    async def _refuse(self, received: ReceivedMessage, error: Exception) -> None:
        count_refusal(self.counts, IN, received.message.topic, error)

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
                notification, self._translation, retain=self._retain, now_us=now_us
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
            done: list[int] = []
            again: list[int] = []
            for position, future in due:
                try:
                    await future
                    self.counts[OUT] += 1
                except errors.ConnectionFailedError:
                    raise
                except errors.NoPlaceError as error:
                    count_refusal(self.counts, OUT, str(position), error, "waiting")
                    again.append(position)
                    continue
                except errors.ContradaError as error:
                    count_refusal(self.counts, OUT, str(position), error)
                done.append(position)
            if done:
                await events.acknowledge(*done)
            if again:
                await events.nack(*again)

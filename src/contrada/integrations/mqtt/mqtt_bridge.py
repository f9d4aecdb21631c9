"""`MqttBridge`: between an MQTT 5 broker and a service, such as a broker.

    MQTT  ==arrived==> notifications ==publish==> service     then acknowledged to MQTT
    MQTT  <==PUBACK=== messages <==durable subscription===    then acknowledged to the service

At least once both ways: a message of QoS 1, or a certified notification, is acknowledged only when
the other side has it. A message that cannot go over at all, since it has no topic or one side
refuses it, is counted, logged and acknowledged, so that it holds up none behind it. No message goes
back to the side that it came from (see `messages`).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from paho.mqtt.client import topic_matches_sub

from contrada.errors import (
    CannotPublishError,
    ConnectionFailedError,
    ContradaError,
    ServiceClosedError,
    StoreError,
)
from contrada.integrations.mqtt.mqtt_messages import (
    QOS,
    TOPIC,
    TopicTemplate,
    message_of,
    notification_of,
)
from contrada.integrations.mqtt.mqtt_session import MqttArrival, MqttSession
from contrada.model import Filter, FilterSet, Notification
from contrada.model.syntax import parse_filter
from contrada.service import DurableRecord, DurableSubscription, Service
from contrada.service.backoff import Backoff
from contrada.service.envelope_factory import wall_clock_us
from contrada.service.loop_guards import first_of

MQTT_BATCH_MAX: Final = 256
"""Messages of MQTT that are published at once. Beyond it: the rest with the next."""

MQTT_IN_FLIGHT_MAX: Final = 64
"""Messages that a bridge has sent to an MQTT broker and that it has not acknowledged. Beyond it: no
more is read of the durable subscription."""

_PASSING: Final = (ConnectionFailedError, CannotPublishError, StoreError)
"""Temporary errors: the message is published once they have passed."""

IN: Final = "from MQTT"
OUT: Final = "to MQTT"
CIRCLE: Final = "had come from here"

StandingNotifications: TypeAlias = DurableSubscription[Notification]
UnacknowledgedSends: TypeAlias = "asyncio.Queue[tuple[int, asyncio.Future[None]]]"
"""What was sent, by its position, and is not acknowledged by the MQTT broker."""

_LOG: Final = logging.getLogger(__name__)


class MqttBridge:
    """Carries what it is told to, while `run` does. `counts` says how many, and what was not."""

    def __init__(
        self,
        service: Service,
        session: MqttSession,
        *,
        out: Filter | FilterSet | None = None,
        name: str,
        topic: TopicTemplate,
        retain: bool = False,
        filters: Sequence[str] = (),
    ) -> None:
        """Both are open, and stay their owner's. What of the session's messages none of `filters`
        matches is left out: an earlier run may have asked for it.

        `name` is that of the durable subscription to `out`.
        """
        self._service = service
        self._session = session
        self._out = None if out is None else out & parse_filter(f"{QOS} absent")
        self._name = name
        self._topic = topic
        self._retain = retain
        self._filters = [_unshared(each) for each in filters]
        self.counts: Counter[str] = Counter()

    async def run(self, opened: Callable[[], object] = lambda: None) -> None:
        """Carry until one side ends for good; `opened` is called when all is in force.

        Raises ConnectionFailedError, and as `Service.subscribe`.
        """
        if self._out is None:
            opened()
            await self._carry_in()
            return
        asked = self._service.subscribe(self._out, durable=self._name, auto_acknowledge=False)
        async with asked as events:
            opened()
            sent: UnacknowledgedSends = asyncio.Queue(MQTT_IN_FLIGHT_MAX)
            carry_out, settle = self._carry_out(events, sent), self._settle(events, sent)
            await first_of(self._carry_in(), carry_out, settle)

    # --- from MQTT ----------------------------------------------------------------------------

    async def _carry_in(self) -> None:
        while True:
            arrived = await self._session.arrived(MQTT_BATCH_MAX)
            await self._publish([each for each in map(self._notification, arrived) if each])
            for message in arrived:
                self._session.acknowledge(message)

    def _notification(self, arrived: MqttArrival) -> Notification | None:
        message = arrived.message
        if message.is_ours:
            self.counts[f"{IN}, {CIRCLE}"] += 1
            return None
        if not any(topic_matches_sub(each, message.topic) for each in self._filters):
            self.counts[f"{IN}, not asked for"] += 1
            return None
        try:
            return notification_of(message)
        except ContradaError as error:
            self._refused(IN, message.topic, error)
            return None

    async def _publish(self, notifications: list[Notification]) -> None:
        """Publishes all, in order; what is refused is left out, what may pass is tried again."""
        at_once, backoff = len(notifications), Backoff()
        while notifications:
            try:
                done = await self._service.publish_batch(notifications[:at_once])
            except _PASSING as error:
                if self._service.connection.state == "closed":
                    raise
                _LOG.warning("what came from MQTT waits: %(reason)s", {"reason": error})
                done = getattr(error, "published", None) or 0
                await asyncio.sleep(backoff.next_s())
            except ServiceClosedError:
                raise
            except ContradaError as error:
                done = getattr(error, "published", None) or 0
                if at_once == 1 and not done:
                    self._refused(IN, str(notifications.pop(0)[TOPIC]), error)
                at_once = 1  # Singly, the refused one is known.
            self.counts[IN] += done
            notifications = notifications[done:]

    # --- to MQTT ------------------------------------------------------------------------------

    async def _carry_out(self, events: StandingNotifications, sent: UnacknowledgedSends) -> None:
        async for kept in events:
            await sent.put((kept.position, self._sent(kept)))

    def _sent(self, kept: DurableRecord[Notification]) -> "asyncio.Future[None]":
        now_us = wall_clock_us()
        try:
            message = message_of(kept.item, self._topic, retain=self._retain, now_us=now_us)
        except ContradaError as error:
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed
        return self._session.send(message)

    async def _settle(self, events: StandingNotifications, sent: UnacknowledgedSends) -> None:
        """Acknowledges notifications that the MQTT broker has, several at once where possible."""
        while True:
            due = [await sent.get()]
            while not sent.empty():
                due.append(sent.get_nowait())
            for position, future in due:
                try:
                    await future
                    self.counts[OUT] += 1
                except ConnectionFailedError:
                    raise
                except ContradaError as error:
                    self._refused(OUT, str(position), error)
            await events.acknowledge(*(position for position, _ in due))

    def _refused(self, way: str, what: str, error: ContradaError) -> None:
        self.counts[f"{way}, refused"] += 1
        said = {"way": way, "kind": what, "reason": error}
        _LOG.warning("%(way)s, %(kind)s: %(reason)s", said)


def _unshared(filter_: str) -> str:
    """What a subscription matches, also one that is shared: `$share/group/filter`."""
    return filter_.split("/", 2)[2] if filter_.startswith("$share/") else filter_

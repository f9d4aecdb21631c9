"""`Bridge`: relays records between another messaging system and a service, in both directions.

    peer  ==receive==> notifications ==publish==> service     then acknowledged to the peer
    peer  <==confirm== records <==durable subscription==      then acknowledged to the service

Delivery is at least once in both directions, as far as the other system acknowledges: a record is
acknowledged only when the other side has it. A lost connection is opened again, with growing waits.
A record that one side refuses is a dead letter: it is counted and logged, and then kept at its own
side if `dead_letters` names a place; else it is acknowledged, and so lost. A notification for which
the other system has no place, or no permission, is sent again, with growing waits. Neither blocks
the records behind it. No record returns to the side of its origin (see `record_translation`).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from contrada import errors
from contrada.delivery.retention import Retention
from contrada.integrations.bridges.bridge_peer import (
    RETRY_S_MAX,
    BridgeLimits,
    BridgePeer,
    PeerAddress,
)
from contrada.integrations.bridges.record_translation import REASON, PeerRecord, RecordTranslation
from contrada.model import Filter, FilterSet, Notification
from contrada.net.client.published_frames import publish_frames
from contrada.service import DurableRecord, DurableSubscription, Service
from contrada.service.backoff import USUAL_BACKOFF, Backoff
from contrada.service.loop_guards import first_of

IN: Final = "in"
OUT: Final = "out"

CIRCLE: Final = f"{IN}, from here"
"""The count of received records that are from here."""

UNWANTED: Final = f"{IN}, not asked for"
"""The count of received records of sources that an earlier run had."""

ATTEMPTS_MAX: Final = 5
"""Attempts to send a notification with `dead_letters`. Beyond it: it is moved there."""

PATIENCE_MAX: Final = 64
"""Factor of `bridge_wait_s` for a record that takes longer. Beyond it: it grows no more."""

_TEMPORARY: Final = (
    errors.ConnectionFailedError,
    errors.CannotPublishError,
    errors.StoreError,
    errors.QuotaError,
)
"""Errors after which the publication is retried."""

_REASON_CHARACTERS: Final = 200

_ENDS: Final = {"refused": "lost", "waiting": "sent again until it has a place"}

_LOG: Final = logging.getLogger(__name__)


class Bridge:
    """Relays records while `run` runs; `counts` has relayed and refused ones by direction."""

    def __init__(
        self,
        service: Service,
        peer: BridgePeer,
        translation: RecordTranslation,
        *,
        out: Filter | FilterSet | None = None,
        dead_letters: str = "",
    ) -> None:
        """The caller opens and closes `service`; the name of the peer is that of the durable
        subscription to `out`. `dead_letters` names a topic of the other system for records that
        are no notifications, and the durable subscription for notifications that are refused.
        Raises InvalidValueError for a name that no topic has.
        """
        self._service = service
        self._peer = peer
        self._translation = translation
        self._out = None if out is None else translation.outgoing(out)
        if dead_letters:
            peer.template(dead_letters)  # Raises InvalidValueError for no name of a topic.
        self._dead_letters = dead_letters
        self._limits: BridgeLimits = peer.settings.limits
        self._unsent: asyncio.Queue[DurableRecord[Notification]] = asyncio.Queue(
            self._limits.bridge_batch_max
        )
        self._unconfirmed: list[DurableRecord[Notification]] = []
        self._sent_max: float = self._limits.bridge_batch_max
        self._dead_patience = 1.0
        self.counts: Counter[str] = Counter()

    @property
    def address(self) -> PeerAddress:
        """The address of the other system."""
        return self._peer.settings.address

    @property
    def dropped(self) -> int:
        """The number of records that exceeded the queue, of systems that do not wait."""
        return self._peer.dropped

    async def run(self, opened: Callable[[], object] = lambda: None) -> None:
        """Relays until one side ends for good; calls `opened` when all subscriptions are in force.
        Raises ConnectionFailedError, and as `Service.subscribe`.
        """
        try:
            await self._peer.open()
            if self._out is None:
                opened()
                await self._relay(None)
                return
            retention = Retention(
                attempts_max=ATTEMPTS_MAX if self._dead_letters else 0,
                dead_letter=self._dead_letters,
                backoff_s=self._limits.bridge_retry_s,
                backoff_s_max=RETRY_S_MAX,
            )
            subscription = self._service.subscribe(
                self._out,
                durable=self._peer.settings.name,
                auto_acknowledge=False,
                retention=retention,
            )
            async with subscription as events:
                opened()
                await first_of(self._read(events), self._relay(events))
        finally:
            await self._close()

    async def _relay(self, events: DurableSubscription[Notification] | None) -> None:
        clock, backoff = asyncio.get_running_loop().time, Backoff()
        while True:
            began_s = clock()
            is_receiving = self._peer.always_receives or self._peer.settings.sources
            works = [self._relay_in()] if is_receiving else []
            works += [] if events is None else [self._relay_out(events)]
            try:
                await first_of(*works)
            except errors.PeerLostError as error:
                _LOG.warning("%(address)s: %(reason)s", _about(error))
            if clock() - began_s > USUAL_BACKOFF.steady_s:
                backoff.reset()
            await self._reopen(backoff)

    async def _reopen(self, backoff: Backoff) -> None:
        known = ""
        while True:
            await self._close()
            await asyncio.sleep(backoff.next_s())
            try:
                await self._peer.open()
            except errors.ConnectionFailedError as error:
                # Not only a lost one: a user may be back after a restart.
                if error.reason != known:
                    _LOG.warning("%(address)s: %(reason)s", _about(error))
                known = error.reason
            else:
                _LOG.info("connected to %(address)s", {"address": self._peer.settings.address})
                return

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(self._limits.bridge_wait_s):
                await self._peer.aclose()
        except TimeoutError:
            address = self._peer.settings.address
            _LOG.warning("%(address)s: %(reason)s", {"address": address, "reason": "not closed"})

    # --- in -----------------------------------------------------------------------------------

    async def _relay_in(self) -> None:
        while True:
            records = await self._peer.receive()
            pairs = [pair for pair in map(self._pair, records) if pair is not None]
            await self._publish(pairs)
            await self._peer.acknowledge(records)

    def _pair(self, record: PeerRecord) -> tuple[PeerRecord, Notification | Exception] | None:
        """Returns a record with its notification or why there is none; None for one from here, or
        of no source.
        """
        if record.is_ours:
            self.counts[CIRCLE] += 1
            return None
        if not self._peer.wants(record):
            self.counts[UNWANTED] += 1
            return None
        try:
            return record, self._translation.notification_of(record)
        except errors.ContradaError as error:
            return record, error

    async def _publish(self, pairs: list[tuple[PeerRecord, Notification | Exception]]) -> None:
        """Publishes notifications of received records in order; retries after temporary errors."""
        at_once, backoff, known = len(pairs), Backoff(), ""
        while pairs:
            record, first = pairs[0]
            if isinstance(first, Exception):
                await self._refuse(record, first)
                pairs = pairs[1:]
                continue
            batch: list[Notification] = []
            for _, each in pairs[:at_once]:
                if isinstance(each, Exception):
                    break
                batch.append(each)
            done, forbidden = 0, list[tuple[PeerRecord, Exception]]()
            try:
                async for size, refused in publish_frames(self._service, batch):
                    forbidden += [(pairs[at][0], each) for at, each in refused.items()]
                    self.counts[IN] += size - len(refused)
                    pairs = pairs[size:]
            except _TEMPORARY as error:
                if self._service.connection.state == "closed":
                    raise
                if str(error) != known:  # One line for all attempts.
                    fields = {"address": self.address, "reason": error}
                    _LOG.warning("records of %(address)s wait: %(reason)s", fields)
                known = str(error)
                done = error.published or 0
                await asyncio.sleep(max(backoff.next_s(), getattr(error, "retry_in_s", 0)))
            except errors.ServiceClosedError:
                raise
            except errors.ContradaError as error:
                done = error.published or 0
                if at_once == 1 and not done:
                    await self._refuse(record, error)
                    pairs = pairs[1:]
                at_once = 1  # One by one, so that the error belongs to one record.
            self.counts[IN] += done
            pairs = pairs[done:]
            for refusal in forbidden:
                await self._refuse(*refusal)

    async def _refuse(self, record: PeerRecord, error: Exception) -> None:
        """Sends a record to the dead letters of the other system, if these have a name; waits while
        there is no such place, and the records behind it wait, too.
        """
        self._count(IN, record.topic, error)
        if self._dead_letters:
            reason = " ".join(str(error).split())[:_REASON_CHARACTERS]
            dead = replace(
                record,
                topic=self._dead_letters,
                headers=(*record.headers, (REASON, reason), ("contrada.topic", record.topic)),
            )
            backoff, known = Backoff(), ""
            while isinstance(refusal := await self._send_dead(dead), errors.NoPlaceError):
                reason = f"dead letters {self._dead_letters}: {refusal}"
                if reason != known:  # One line for all attempts.
                    fields = {"address": self.address, "reason": reason}
                    _LOG.warning("%(address)s: %(reason)s", fields)
                known = reason
                await asyncio.sleep(backoff.next_s())
            if refusal is not None:  # The record would block all others for ever.
                facts = (f", {name} {value}" for name, value in record.facts.items())
                lost = errors.shortened(f"{record.topic}{''.join(facts)}")
                self._count(f"{IN}, dead letters", lost, refusal, "lost")

    async def _send_dead(self, dead: PeerRecord) -> errors.ContradaError | None:
        """Sends a dead letter, with twice the time after each lost connection; returns the refusal
        of the other system.
        """
        self._peer.patience = max(1 / self._sent_max, self._dead_patience)
        # Before the attempt: another task may be the one that notices a lost connection.
        self._dead_patience = min(2 * self._dead_patience, PATIENCE_MAX)
        (refusal,) = await self._peer.send([dead])
        self._dead_patience = 1.0
        return refusal

    def _count(
        self, direction: str, name: str, error: object, result: str = "refused", count: int = 1
    ) -> None:
        """Counts and logs a record that one side refuses; `name` is its topic or position. One
        line is for `count` records.
        """
        direction = f"{direction}, {result}"
        self.counts[direction] += count
        name += f" and {count - 1} more" if count > 1 else ""
        end = "" if self._dead_letters else f"; without dead letters it is {_ENDS[result]}"
        fields = {"way": direction, "kind": name, "reason": f"{error}{end}"}
        _LOG.warning("%(way)s, %(kind)s: %(reason)s", fields)

    # --- out ----------------------------------------------------------------------------------

    async def _read(self, events: DurableSubscription[Notification]) -> None:
        # A task of its own: a record would be lost in a read that is cut with a connection.
        async for record in events:
            await self._unsent.put(record)

    async def _relay_out(self, events: DurableSubscription[Notification]) -> None:
        while True:
            if not self._unconfirmed:
                await self._take()
            most = self._sent_max
            some = self._unconfirmed[: max(int(most), 1)]
            # After a lost connection half as many: a slow one may take no more in its time. Half of
            # one is one in twice the time. A dead letter that is not sent yet may need more, and
            # some peers take their time at the opening.
            self._peer.patience = max(1 / most, self._dead_patience)
            self._sent_max = max(min(most, len(some)) / 2, 1 / PATIENCE_MAX)
            again = await self._send(some)
            self._sent_max = min(most + min(most, 1), self._limits.bridge_batch_max)
            if done := {each.position for each in some} - again:
                await self._settle(events.acknowledge(*done), done)
            if again:
                await self._settle(events.nack(*again), again)

    async def _settle(self, work: Awaitable[None], positions: set[int]) -> None:
        """Waits until this side has the answers to notifications, and then forgets these: before, a
        lost connection may end the task.
        """
        with suppress(errors.StoreError):  # The broker logs it, and tries it again.
            await work
        self._unconfirmed = [each for each in self._unconfirmed if each.position not in positions]

    async def _take(self) -> None:
        """Takes a batch of read notifications, at least one."""
        most, bytes_max = self._limits.bridge_batch_max, self._limits.bridge_batch_bytes_max
        self._unconfirmed.append(await self._unsent.get())
        size = len(self._unconfirmed[0].item.body)
        while len(self._unconfirmed) < most and size < bytes_max and not self._unsent.empty():
            self._unconfirmed.append(self._unsent.get_nowait())
            size += len(self._unconfirmed[-1].item.body)

    async def _send(self, some: list[DurableRecord[Notification]]) -> set[int]:
        refusals: dict[int, errors.ContradaError] = {}
        sent: list[tuple[int, PeerRecord]] = []
        for each in some:
            try:
                sent.append((each.position, self._translation.record_of(each.item)))
            except errors.ContradaError as error:
                refusals[each.position] = error
        if sent:
            answers = await self._peer.send([record for _, record in sent])
            for (position, _), refusal in zip(sent, answers, strict=True):
                if refusal is None:
                    self.counts[OUT] += 1
                else:
                    refusals[position] = refusal
        again, waiting = set[int](), dict[str, list[int]]()
        for position, refusal in refusals.items():
            if isinstance(refusal, errors.NoPlaceError):
                waiting.setdefault(str(refusal), []).append(position)
            else:
                self._count(OUT, str(position), refusal)
            if isinstance(refusal, errors.NoPlaceError) or self._dead_letters:
                again.add(position)
        for reason, positions in waiting.items():  # Each attempt would log all of a queue.
            self._count(OUT, str(positions[0]), reason, "waiting", len(positions))
        return again


def _about(error: errors.ConnectionFailedError) -> dict[str, object]:
    return {"address": error.address, "reason": error.reason}

"""`FeedPoller`: polls feeds and yields their new and changed entries.

Known entries are removed from the document, which the renderer then reads like any other, so all
strategies and options apply to feeds. Entries of a poll count as known when the next poll is
requested: a program that ends before gets them again.

Source: Erenkrantz 2001 §3, §8 (feeds as sources of events).
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import compress
from time import monotonic

from contrada.errors import ContradaError, ServiceError
from contrada.integrations.feeds.feed_document import FeedDocument, remembered
from contrada.integrations.feeds.feed_formats import only, read_feed
from contrada.integrations.feeds.feed_limits import FeedLimits
from contrada.integrations.feeds.feed_states import EntryState, FeedStates, Validators
from contrada.integrations.feeds.fetcher import Fetched, Fetcher, shown_source
from contrada.integrations.feeds.json_feed import is_json
from contrada.integrations.files import BadRecord, ReadOptions, Record, Renderer
from contrada.integrations.files.record import BAD_TEXT_CHARS_MAX, bad_record
from contrada.service.loop_guards import stop_tasks


@dataclass(frozen=True, slots=True)
class Poll:
    """The result of polling one feed.

    `records` are those of `new` or `changed` entries, `bad` of them cannot be read; `unchanged`
    entries are known. `error` is the reason if the feed could not be read.
    """

    source: str
    records: tuple[Record | BadRecord, ...] = ()
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    error: ContradaError | None = None

    @property
    def bad(self) -> int:
        """The number of records that could not be read."""
        return sum(isinstance(each, BadRecord) for each in self.records)


class FeedPoller:
    """Polls feeds: files, and HTTP addresses."""

    def __init__(
        self,
        sources: Iterable[str],
        options: ReadOptions | None = None,
        *,
        states: FeedStates | None = None,
        identity: str | None = None,
        edits: bool = False,
        limits: FeedLimits = FeedLimits(),
    ) -> None:
        """`options.entries` names the entries of an unknown format.

        With a stylesheet they are those of its result, and the format must be known. For `identity`
        and `edits` see `feed_formats.read_feed`.
        """
        self._sources: Sequence[str] = tuple(sources)
        self._options = ReadOptions() if options is None else options
        Renderer(self._options)  # Raises its errors now.
        self._limits = limits
        self._states = FeedStates(limits=limits) if states is None else states
        self._identity, self._edits = identity, edits
        # Validators of a response are valid only for the same way of reading it.
        how = (self._options.entries, identity, edits)
        self._key_suffix = "" if how == (None, None, False) else f" {how}"

    async def polls(self, every_s: float | None = None) -> AsyncGenerator[Poll, None]:
        """Yields a poll of each feed, in order, every `every_s` seconds; or once.

        An unreadable feed does not end it. Raises InputError if states cannot be written.
        """
        if every_s is not None and not every_s > 0:
            raise ServiceError(f"every_s = {every_s!r}: expected seconds above 0")
        async with Fetcher(limits=self._limits) as fetcher:
            while True:
                began_s = monotonic()
                async with aclosing(self._fetched(fetcher)) as answers:
                    async for source, fetched in answers:
                        poll, feed = self._poll(source, fetched)
                        yield poll
                        if feed is not None:
                            assert isinstance(fetched, Fetched)
                            self._states.take(self._place(source), feed, fetched.validators)
                if every_s is None:
                    return
                await asyncio.sleep(max(began_s + every_s - monotonic(), 0))

    async def _fetched(
        self, fetcher: Fetcher
    ) -> AsyncGenerator[tuple[str, Fetched | ContradaError], None]:
        """Yields the document of each source, or the error; several are fetched at once."""
        left = deque(self._sources)
        fetches: deque[tuple[str, asyncio.Task[Fetched | ContradaError]]] = deque()
        try:
            while left or fetches:
                while left and len(fetches) < self._limits.fetches_at_once:
                    source = left.popleft()
                    known = self._states.last(self._place(source)).validators
                    fetches.append((source, asyncio.create_task(_tried(fetcher, source, known))))
                source, task = fetches.popleft()
                yield source, await task
        finally:
            await stop_tasks([task for _, task in fetches])

    def _place(self, source: str) -> str:
        """Returns the key of a feed's state: its source and options."""
        return f"{shown_source(source)}{self._key_suffix}"

    def _poll(
        self, source: str, fetched: Fetched | ContradaError
    ) -> tuple[Poll, FeedDocument | None]:
        """Returns the poll of a feed, and the feed if its document is new."""
        shown = shown_source(source)
        if isinstance(fetched, ContradaError):
            return Poll(shown, error=fetched), None
        if fetched.data is None:
            return Poll(shown, unchanged=self._states.last(self._place(source)).entries), None
        try:
            # A stylesheet makes other elements of the entries.
            entries = None if self._options.stylesheet else self._options.entries
            format_name = "json" if is_json(fetched.data) else "xml"
            Renderer(self._options, format_name)  # Raises for options of XML.
            feed = read_feed(
                fetched.data,
                shown,
                entries,
                self._identity,
                edits=self._edits,
                entries_max=self._limits.feed_entries_max,
            )
        except ContradaError as error:
            return Poll(shown, error=error), None
        records: list[Record | BadRecord] = []
        seen = self._states.seen(feed.identity)
        for (fault, piece), digest in zip(feed.faults, feed.omitted, strict=True):
            if digest in seen.entries:
                continue  # It was reported before.
            text = piece[:BAD_TEXT_CHARS_MAX].decode("utf-8", "replace")
            records.append(bad_record(shown, fault, None, text))
        judged = seen.judge(feed)
        is_chosen = (state is not EntryState.UNCHANGED for state in judged)
        if chosen := list(compress(feed.entries, is_chosen)):
            entries = self._options.entries if self._options.stylesheet else feed.entries_name
            renderer = Renderer(replace(self._options, entries=entries), format_name)
            left = only(feed, chosen, fetched.address)
            feed, chosen = remembered(feed), []
            records += renderer.render(left, shown)
        new, changed, unchanged = (judged.count(state) for state in EntryState)
        return Poll(shown, tuple(records), new, changed, unchanged), feed


async def _tried(fetcher: Fetcher, source: str, known: Validators) -> Fetched | ContradaError:
    try:
        return await fetcher.fetch(source, known)
    except ContradaError as error:
        return error

"""`QueryRouter`: forwards queries to sources, and returns their answers.

    Ask     ==> admitted ==> descriptions ==> sources of clients, and neighbours: its *branches*
    Answer  <== one answer upstream: items in turn, reports, or the combined result <== branches

A query stays open until all of its branches have ended, its limit or deadline is reached, or the
asker cancels it. Then the remaining branches are cancelled.

Invariants: a branch sends no more items than its credit, so at most one window of items per branch
waits here. A report follows the items of its source, or shares a message with the combination that
contains them. Each source that was reported as asked is reported a second time, with its outcome; a
lost server as `@NAME`, since sources may be missing behind it.

Source: CU-CS-948-03 §2 (advertise, query, respond), §5; §8 (answers combined on their way).
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import repeat
from typing import Final, TypeAlias

from msgspec.structs import replace

from contrada.errors import ContradaError, LimitError, MissingRequirementError
from contrada.model import Notification
from contrada.model.algebra.product import product_meets
from contrada.model.languages.work_budget import spend
from contrada.routing.admission import Admission
from contrada.routing.aggregation import Partial
from contrada.routing.interest_forwarder import InterestForwarder
from contrada.routing.links.topology import Topology
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import (
    REPORTS_MAX,
    Answer,
    Ask,
    Cancel,
    Client,
    DeliverQuestion,
    Effect,
    More,
    Neighbour,
    NextHop,
    NotifyClient,
    Offer,
    Origin,
    Reason,
    Received,
    Refused,
    RefusedError,
    Send,
    SourceReport,
    SourceState,
    check_limit,
    failed,
)
from contrada.routing.tables.interest_table import COMPARED_PER_STEP
from contrada.routing.tables.poset import Node, entry_work

ANSWER_WINDOW: Final = 256
"""Items that a branch may send before it is granted more."""

HOP_MARGIN_US: Final = 2_000
"""Microseconds, plus a twentieth, by which a server ends before the server upstream, so that it can
still report missing sources."""

_CANDIDATE_WORK: Final = 2
"""Steps of work for each description that the index finds for a query."""

_STALE: Final = 64
"""Deadlines of ended queries that may remain in the heap, besides as many as are open."""

_QueryKey: TypeAlias = tuple[str, str]
"""An asker and the identity of its query."""


@dataclass(slots=True)
class _QueryBranch:
    """A party that received a query: the sources it reported, the items that it may send."""

    granted: int
    sources: Counter[str] = field(default_factory=Counter)
    forwarded: int = 0


@dataclass(slots=True)
class _OpenQuery:
    """A query in progress; `credit` items may be sent upstream."""

    origin: Origin
    request: Ask
    key: _QueryKey
    deadline_us: int
    credit: int
    window: int
    """Items that a branch may send at first: none where results are combined."""
    partial: Partial | None
    branches: dict[Origin, _QueryBranch] = field(default_factory=dict)
    pending: deque[tuple[Origin, Notification | SourceReport]] = field(default_factory=deque)
    items_left: int = 0
    """Items until its limit, if it has one."""
    final_reports: list[SourceReport] = field(default_factory=list)
    """The reports that accompany the combined result."""
    source_count: int = 0
    """Sources that were asked, here or according to branches."""
    failure: str = ""
    """Why the combined result is invalid; then none is sent."""


class QueryRouter:
    """The queries of one server. `late` counts messages about queries that have ended."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        admission: Admission,
        forwarding: InterestForwarder,
        limits: RouterLimits = RouterLimits(),
    ) -> None:
        self._limits = limits
        self.late = 0
        self._name = name
        self._topology = topology
        self._admission = admission
        self._floods = forwarding.floods
        self._descriptions = forwarding.descriptions
        self._open: dict[_QueryKey, _OpenQuery] = {}
        # Queries by asker and by branch, to find them when a connection is lost.
        self._by_origin: dict[Origin, dict[_QueryKey, None]] = {}
        self._due: list[tuple[int, _QueryKey]] = []

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, origin: object) -> bool:
        return origin in self._by_origin

    # --- queries ------------------------------------------------------------------------------

    def ask(self, origin: Origin, message: Ask, now_us: int) -> list[Effect]:
        """Forwards a query to all sources with matching descriptions, here and over links.

        With flooding it reaches every server. A neighbour receives an answer even to a refused
        query. Cost: one lookup over all descriptions, and the algebra for the candidates.
        """
        try:
            return self._accept(origin, message, now_us)
        except RefusedError as refusal:
            if isinstance(origin, Client) or origin not in self._topology:
                raise
            reports: tuple[SourceReport, ...] = ()
            if refusal.reason is not Reason.DUPLICATE:  # Its first copy is answered on its path.
                reports = (self._report_of(self._name, SourceState.FAILED, refusal.reason),)
            last = Answer(message.asker, message.identity, reports=reports, is_last=True)
            refused = Refused(Received(origin, message), refusal.reason, refusal.error)
            return [refused, Send(origin, last)]

    def _accept(self, origin: Origin, message: Ask, now_us: int) -> list[Effect]:
        key = (message.asker, message.identity)
        self._admission.check_query(origin, message)
        if key in self._open:
            raise RefusedError(Reason.DUPLICATE)
        self._admission.check_duplicate(Ask, *key)
        check_limit(self._limits, "questions_max", len(self._open) + 1)
        try:
            partial = None if message.combination is None else Partial(message.combination)
        except MissingRequirementError as error:
            raise RefusedError(Reason.WRONG_QUESTION, error) from None
        looks = len(self._descriptions.poset) // COMPARED_PER_STEP
        queries = [each.query for each in message.alternatives]
        spend(entry_work(queries) + looks * len(queries))
        sources, next_hops = self._find_sources(message)
        count = sum(map(len, sources.values()))
        check_limit(self._limits, "question_sources_max", count)
        left_us = message.timeout_us - max(message.timeout_us // 20, HOP_MARGIN_US)
        credit = min(message.window, self._limits.items_granted_max)
        window = ANSWER_WINDOW if partial is None else 0
        question = _OpenQuery(
            *(origin, message, key, now_us + left_us, credit, window, partial),
            items_left=message.limit,
            source_count=count,
        )
        onward: list[Neighbour] = []
        if message.hops < message.hops_max and self._topology.adjacencies:
            wanting = None if self._floods else next_hops
            onward = self._topology.next_neighbours(origin, message.source, wanting)
        if left_us <= 0:  # Too late to ask anyone.
            for name in (each for names in sources.values() for each in names):
                question.pending.append((origin, SourceReport(name, SourceState.TIMED_OUT)))
            for each in onward:
                report = self._report_of(each.name, SourceState.TIMED_OUT)
                question.pending.append((origin, report))
            return self._advance(question)
        further = replace(message, timeout_us=left_us, window=question.window)
        self._hold(question)
        effects: list[Effect] = []
        for client, names in sorted(sources.items()):
            self._add_branch(question, client).sources.update(names)
            effects.append(DeliverQuestion(client, (*sorted(names),), further))
            for name in sorted(names):
                question.pending.append((client, SourceReport(name, SourceState.ASKED)))
        for neighbour in onward:
            self._add_branch(question, neighbour)
            source = self._topology.source_over(neighbour, message.source)
            onto = replace(further, hops=message.hops + 1, source=source)
            effects.append(Send(neighbour, onto))
        return effects + self._advance(question)

    def _find_sources(self, message: Ask) -> tuple[dict[Client, list[str]], set[NextHop]]:
        descriptions = self._descriptions
        met: dict[Node[Offer], None] = {}
        for each in message.alternatives:
            found = descriptions.index.may_meet(each.query)
            spend(_CANDIDATE_WORK * len(found))
            for node in map(descriptions.poset.node, found):
                if product_meets(node.product, each.query):
                    met[node] = None
        sources: dict[Client, dict[str, None]] = {}
        next_hops: set[NextHop] = set()
        for node in met:
            for party, names in node.subscribers.items():
                if isinstance(party, NextHop):
                    next_hops.add(party)
                else:
                    sources.setdefault(party, {}).update(dict.fromkeys(names))
        return {client: [*names] for client, names in sources.items()}, next_hops

    # --- answers ------------------------------------------------------------------------------

    def answer(self, origin: Origin, message: Answer) -> list[Effect]:
        """Takes the answer of a branch, and forwards the ready part. Late ones are counted."""
        question = self._open.get((message.asker, message.identity))
        branch = question.branches.get(origin) if question is not None else None
        if question is None or branch is None:
            self.late += 1
            return []
        is_too_much = len(message.items) > branch.granted
        fault = "it sent more than was asked for" if is_too_much else ""
        if isinstance(origin, Neighbour):  # The sources of a client are counted already.
            states = [each.state for each in message.reports]
            question.source_count += states.count(SourceState.ASKED)
        if question.source_count > REPORTS_MAX:
            fault = fault or f"more than {REPORTS_MAX} sources"
        if fault:
            self._give_up(question, origin, SourceState.FAILED, fault)
            return [_to(origin, Cancel(*question.key)), *self._advance(question)]
        branch.granted -= len(message.items)
        question.pending.extend(zip(repeat(origin), message.items, strict=False))
        reports = self._combine_partial(question, message)
        for report in reports:
            self._record_report(question, origin, branch, report)
        if message.is_last:
            reason = "it ended without a report"
            for name in branch.sources.elements():
                report = SourceReport(name, SourceState.FAILED, reason=reason)
                question.pending.append((origin, report))
            self._end_branch(question, origin)
        if question.failure:
            return self._stop(question, SourceState.FAILED, question.failure)
        return self._advance(question)

    def _combine_partial(self, question: _OpenQuery, message: Answer) -> Iterable[SourceReport]:
        if question.partial is None or not message.partial:
            return message.reports
        assert question.request.combination is not None, "there is nothing to combine"
        try:
            partial = Partial.from_bytes(question.request.combination, message.partial)
        except ContradaError as error:
            return failed(message.reports, str(error))
        try:
            question.partial.combine(partial)
        except ContradaError as error:  # It may be combined in part.
            question.failure = str(error)
        return message.reports

    def _record_report(
        self, question: _OpenQuery, origin: Origin, branch: _QueryBranch, report: SourceReport
    ) -> None:
        known = branch.sources[report.name]
        if isinstance(origin, Client) and (not known or report.state is SourceState.ASKED):
            self.late += 1  # The sources of a client are known already.
            return
        if report.state is SourceState.ASKED:
            branch.sources[report.name] += 1
        elif known:
            branch.sources[report.name] -= 1
        question.pending.append((origin, report))

    def more(self, origin: Origin, message: More) -> list[Effect]:
        """Grants further items to the asker."""
        question = self._open.get((message.asker, message.identity))
        if question is None or question.origin != origin:
            self.late += 1
            return []
        credit = question.credit + max(message.count, 0)
        question.credit = min(credit, self._limits.items_granted_max)
        return self._advance(question)

    def cancel(self, origin: Origin, message: Cancel) -> list[Effect]:
        """Ends a query for its asker."""
        question = self._open.get((message.asker, message.identity))
        if question is None or question.origin != origin:
            self.late += 1
            return []
        return self._cancel(question)

    # --- the end of a query -------------------------------------------------------------------

    def remove_origin(self, origin: Origin) -> list[Effect]:
        """Ends the queries and branches of a lost client or neighbour."""
        effects: list[Effect] = []
        for key in list(self._by_origin.get(origin, ())):
            question = self._open[key]
            if question.origin == origin:
                effects += self._cancel(question, but=origin)
            else:
                self._give_up(question, origin, SourceState.LOST, "its connection was lost")
                effects += self._advance(question)
        return effects

    @property
    def due_us(self) -> int | None:
        """The next deadline; None without open queries."""
        while self._due and self._due[0][1] not in self._open:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def expire(self, now_us: int) -> list[Effect]:
        """Ends the overdue queries, with reports of the missing sources."""
        effects: list[Effect] = []
        while (due_us := self.due_us) is not None and due_us <= now_us:
            question = self._open[heappop(self._due)[1]]
            effects += self._stop(question, SourceState.TIMED_OUT)
        return effects

    def _stop(self, question: _OpenQuery, state: SourceState, reason: str = "") -> list[Effect]:
        """Ends a query early: the sources of its open branches are reported in this state."""
        stopped: list[Effect] = [_to(each, Cancel(*question.key)) for each in question.branches]
        for each in list(question.branches):
            self._give_up(question, each, state, reason)
        items, reports = self._take_ready(question)
        # Items without credit are dropped here. So the source that such a report names did not
        # answer in full.
        for _, report in question.pending:
            if isinstance(report, SourceReport):
                is_answered = report.state is SourceState.ANSWERED
                reports.append(replace(report, state=state) if is_answered else report)
        question.pending.clear()
        return [*stopped, *self._answer_origin(question, items, reports, is_last=True)]

    def _give_up(
        self, question: _OpenQuery, origin: Origin, state: SourceState, reason: str = ""
    ) -> None:
        """Ends a branch, with reports of its sources, and of the server itself."""
        for name in question.branches[origin].sources.elements():
            question.pending.append((origin, SourceReport(name, state, reason=reason)))
        if isinstance(origin, Neighbour):
            question.pending.append((origin, self._report_of(origin.name, state, reason)))
        self._end_branch(question, origin)

    @staticmethod
    def _report_of(server: str, state: SourceState, reason: str = "") -> SourceReport:
        return SourceReport(f"@{server}", state, reason=reason)

    # --- upstream -----------------------------------------------------------------------------

    def _advance(self, question: _OpenQuery) -> list[Effect]:
        """Sends the ready part upstream, and grants branches more."""
        items, reports = self._take_ready(question)
        is_done = question.request.limit > 0 and not question.items_left
        if is_done and (question.branches or question.pending):
            answer = self._answer_origin(question, items, reports)
            return [*answer, *self._stop(question, SourceState.STOPPED)]
        effects: list[Effect] = []
        for origin, branch in question.branches.items():
            if branch.forwarded >= ANSWER_WINDOW // 2:
                branch.granted += branch.forwarded
                effects.append(_to(origin, More(*question.key, branch.forwarded)))
                branch.forwarded = 0
        is_last = not question.branches and not question.pending
        return [*effects, *self._answer_origin(question, items, reports, is_last=is_last)]

    @staticmethod
    def _take_ready(question: _OpenQuery) -> tuple[list[Notification], list[SourceReport]]:
        """Removes and returns the ready items and reports, in order; only items need credit."""
        items, reports, waiting = list[Notification](), list[SourceReport](), question.pending
        has_limit = question.request.limit > 0
        while waiting:
            origin, each = waiting[0]
            if isinstance(each, SourceReport):
                reports.append(each)
            elif question.credit and (question.items_left or not has_limit):
                question.credit -= 1
                question.items_left -= has_limit
                items.append(each)
                if origin in question.branches:
                    question.branches[origin].forwarded += 1
            else:
                break
            waiting.popleft()
        return items, reports

    def _answer_origin(
        self,
        question: _OpenQuery,
        items: list[Notification],
        reports: list[SourceReport],
        *,
        is_last: bool = False,
    ) -> list[Effect]:
        """Sends an answer upstream; the last one ends the query here."""
        partial = b""
        if question.partial is not None:  # It contains the sources that are reported as ended.
            question.final_reports += [it for it in reports if it.state is not SourceState.ASKED]
            reports = [it for it in reports if it.state is SourceState.ASKED]
            if is_last:
                partial = self._encode_partial(question, question.partial)
                ended = question.final_reports
                reports += failed(ended, question.failure) if question.failure else ended
        effects: list[Effect] = []
        if items or reports or is_last:
            answer = Answer(*question.key, (*items,), (*reports,), partial, is_last=is_last)
            effects.append(_to(question.origin, answer))
        if is_last:
            self._remove(question)
        return effects

    @staticmethod
    def _encode_partial(question: _OpenQuery, partial: Partial) -> bytes:
        """Returns the encoded partial result. If it is too large: b"", and the query fails."""
        if not question.failure:
            try:
                return partial.to_bytes()
            except LimitError as error:
                question.failure = str(error)
        return b""

    # --- the table of open queries ------------------------------------------------------------

    def _hold(self, question: _OpenQuery) -> None:
        self._open[question.key] = question
        self._by_origin.setdefault(question.origin, {})[question.key] = None
        heappush(self._due, (question.deadline_us, question.key))
        if len(self._due) > 2 * len(self._open) + _STALE:  # Most belong to ended queries.
            self._due = sorted((each.deadline_us, key) for key, each in self._open.items())

    def _add_branch(self, question: _OpenQuery, origin: Origin) -> _QueryBranch:
        branch = question.branches[origin] = _QueryBranch(question.window)
        self._by_origin.setdefault(origin, {})[question.key] = None
        return branch

    def _end_branch(self, question: _OpenQuery, origin: Origin) -> None:
        del question.branches[origin]
        if origin != question.origin:
            self._unlink(question, origin)

    def _cancel(self, question: _OpenQuery, but: Origin | None = None) -> list[Effect]:
        message = Cancel(*question.key)
        effects: list[Effect] = [_to(it, message) for it in question.branches if it != but]
        self._remove(question)
        return effects

    def _remove(self, question: _OpenQuery) -> None:
        if self._open.pop(question.key, None) is not None:
            for origin in {question.origin, *question.branches}:
                self._unlink(question, origin)

    def _unlink(self, question: _OpenQuery, origin: Origin) -> None:
        keys = self._by_origin[origin]
        del keys[question.key]
        if not keys:
            del self._by_origin[origin]

    def validate(self) -> None:
        """Checks the invariants; AssertionError names the broken one. Cost: all queries."""
        linked: dict[Origin, set[_QueryKey]] = {}
        for key, question in self._open.items():
            assert question.branches or question.pending, f"{key} waits for nobody"
            items = Counter(it for it, each in question.pending if isinstance(each, Notification))
            for origin, branch in question.branches.items():
                held = branch.granted + branch.forwarded + items[origin]
                assert held == question.window, f"{origin} has another window"
            for origin in (question.origin, *question.branches):
                linked.setdefault(origin, set()).add(key)
        held_by = {origin: {*keys} for origin, keys in self._by_origin.items()}
        assert linked == held_by, "not found by whom"
        assert {key for _, key in self._due} >= self._open.keys(), "a question has no deadline"


def _to(origin: Origin, message: Answer | More | Cancel) -> Send | NotifyClient:
    return Send(origin, message) if isinstance(origin, Neighbour) else NotifyClient(origin, message)

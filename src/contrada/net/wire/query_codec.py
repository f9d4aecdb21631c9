"""What brokers and clients say about questions, as it travels: types say what may stand there."""

from collections.abc import Iterator
from typing import Annotated, Final, TypeAlias

import msgspec

from contrada.model.codec import to_msgpack
from contrada.model.languages.work_budget import spend
from contrada.net.wire.payload_codec import (
    check_content,
    decoded,
    notifications_from,
    offer_from,
    query_from,
)
from contrada.routing.admission import ALTERNATIVES_MAX
from contrada.routing.aggregation import PARTIAL_BYTES_MAX, Combination
from contrada.routing.delegation import RouterMessage
from contrada.routing.disjuncts import SAME_NAMES_MAX, alternative
from contrada.routing.router_messages import (
    QUESTION_HOPS_MAX,
    REPORTS_MAX,
    SUBSCRIPTION_FILTERS_MAX,
    VERSION,
    Answer,
    Ask,
    Cancel,
    Describe,
    Label,
    More,
    SourceReport,
)

ANSWER_ITEMS_MAX: Final = 1_024
"""Items of one answer. Beyond it: the next takes the rest; one that has more is malformed."""

ANSWER_BYTES_MAX: Final = 256 * 1024
"""Bytes of items after which an answer takes no more. Beyond it: the next takes the rest."""

_NAME_WORK: Final = 2
"""Steps of work to join groups of names, for each name."""

_SourceNames: TypeAlias = Annotated[tuple[str, ...], msgspec.Meta(max_length=SAME_NAMES_MAX)]


class PackedDescribe(RouterMessage, frozen=True, tag="describe"):
    """A `Describe` as it travels."""

    identity: Label
    offers: Annotated[list[bytes], msgspec.Meta(max_length=SUBSCRIPTION_FILTERS_MAX)]
    owner: Label = ""
    version: int = VERSION

    def unpacked(self) -> Describe:
        """The message itself. Raises what its content may raise, and FrameError."""
        offers = tuple(map(offer_from, self.offers))
        return Describe(self.identity, offers, self.owner, self.version)


class _PackedDisjunct(msgspec.Struct, frozen=True, array_like=True):
    query: bytes
    same: Annotated[tuple[_SourceNames, ...], msgspec.Meta(max_length=SAME_NAMES_MAX)] = ()


class PackedAsk(RouterMessage, frozen=True, tag="ask"):
    """An `Ask` as it travels."""

    alternatives: Annotated[list[_PackedDisjunct], msgspec.Meta(max_length=ALTERNATIVES_MAX)]
    asker: Label
    identity: Label
    timeout_us: int
    window: int
    limit: int = 0
    combination: Combination | None = None
    hops_max: int = QUESTION_HOPS_MAX
    hops: int = 0
    source: Label = ""
    version: int = VERSION

    def unpacked(self) -> Ask:
        """The message itself, its alternatives in normal form: so no source is given others.

        Raises what its content may raise, and FrameError.
        """
        spend(sum(_NAME_WORK * len(names) for each in self.alternatives for names in each.same))
        return Ask(
            tuple(
                alternative(query_from(each.query).sets, each.same) for each in self.alternatives
            ),
            self.asker,
            self.identity,
            self.timeout_us,
            self.window,
            self.limit,
            self.combination,
            self.hops_max,
            self.hops,
            self.source,
            self.version,
        )


class PackedAnswer(RouterMessage, frozen=True, tag="answer"):
    """An `Answer` as it travels."""

    asker: Label
    identity: Label
    items: Annotated[list[bytes], msgspec.Meta(max_length=ANSWER_ITEMS_MAX)]
    reports: Annotated[tuple[SourceReport, ...], msgspec.Meta(max_length=REPORTS_MAX)] = ()
    partial: Annotated[bytes, msgspec.Meta(max_length=PARTIAL_BYTES_MAX)] = b""
    is_last: bool = False
    version: int = VERSION

    def unpacked(self) -> Answer:
        """The message itself. Raises EncodingError, LimitError."""
        return Answer(
            self.asker,
            self.identity,
            notifications_from(self.items),
            self.reports,
            self.partial,
            self.is_last,
            self.version,
        )


def split_answer(answer: Answer) -> Iterator[PackedAnswer]:
    """An answer as it travels: as several where its items do not fit into a frame together.

    What is reported comes with the last of them. Raises LimitError for an item that is too large.
    """
    asker, identity = answer.asker, answer.identity
    batch: list[bytes] = []
    size = 0
    for each in answer.items:
        batch.append(check_content(bytes(to_msgpack(each))))
        size += len(batch[-1])
        if size >= ANSWER_BYTES_MAX or len(batch) == ANSWER_ITEMS_MAX:
            yield PackedAnswer(asker, identity, batch)
            batch, size = [], 0
    if batch or answer.reports or answer.partial or answer.is_last:
        yield PackedAnswer(
            asker, identity, batch, answer.reports, answer.partial, answer.is_last, answer.version
        )


def decode_question(data: msgspec.Raw) -> Ask:
    """A question to a client's sources. Raises as `frames.unpacked`."""
    question: PackedAsk = decoded(_QUESTION_DECODER, data)
    return question.unpacked()


def decode_query_message(data: msgspec.Raw) -> Answer | More | Cancel:
    """What is said of a question. Raises as `frames.unpacked`."""
    message = decoded(_ABOUT_DECODER, data)
    return message.unpacked() if isinstance(message, PackedAnswer) else message


_QUESTION_DECODER: Final = msgspec.msgpack.Decoder(PackedAsk)
_ABOUT_DECODER: Final = msgspec.msgpack.Decoder(PackedAnswer | More | Cancel)

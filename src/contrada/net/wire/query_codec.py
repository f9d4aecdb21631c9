"""The wire forms of messages about queries, and answers split into frames."""

from collections.abc import Iterator
from typing import Annotated, Final, TypeAlias

import msgspec

from contrada.model import Query
from contrada.model.codec import to_msgpack
from contrada.model.languages.work_budget import spend
from contrada.net.wire.payload_codec import (
    ContentField,
    WireForm,
    check_content,
    content_from,
    decode_with,
    decoder_of,
    notifications_from,
    offer_from,
)
from contrada.routing.admission import ALTERNATIVES_MAX
from contrada.routing.aggregation import PARTIAL_BYTES_MAX
from contrada.routing.delegation import RouterMessage
from contrada.routing.router_messages import (
    REPORTS_MAX,
    SAME_NAMES_MAX,
    SUBSCRIPTION_FILTERS_MAX,
    Answer,
    Ask,
    Cancel,
    Describe,
    Disjunct,
    Label,
    More,
    SourceReport,
    alternative,
)

ANSWER_ITEMS_MAX: Final = 1_024
"""Items of one answer. Beyond it: the next answer has the rest; a longer one is malformed."""

ANSWER_BYTES_MAX: Final = 256 * 1024
"""Bytes of items after which an answer is full. Beyond it: the next answer has the rest."""

_NAME_WORK: Final = 2
"""Steps of work to join groups of names, for each name."""

_SourceNames: TypeAlias = Annotated[tuple[str, ...], msgspec.Meta(max_length=SAME_NAMES_MAX)]


class _WireDisjunct(msgspec.Struct, frozen=True, array_like=True):
    query: bytes
    same: Annotated[tuple[_SourceNames, ...], msgspec.Meta(max_length=SAME_NAMES_MAX)] = ()


def _disjuncts_from(data: list[_WireDisjunct], _: object) -> tuple[Disjunct, ...]:
    """The disjuncts in normal form, so that all sources of equal queries get the same ones."""
    spend(sum(_NAME_WORK * len(names) for each in data for names in each.same))
    return tuple(alternative(content_from(each.query, Query).sets, each.same) for each in data)


DESCRIPTION: Final = WireForm(
    Describe,
    identity=Label,
    offers=ContentField(
        Annotated[list[bytes], msgspec.Meta(max_length=SUBSCRIPTION_FILTERS_MAX)],
        None,
        lambda data, _: tuple(map(offer_from, data)),
    ),
)

QUESTION: Final = WireForm(
    Ask,
    alternatives=ContentField(
        Annotated[list[_WireDisjunct], msgspec.Meta(max_length=ALTERNATIVES_MAX)],
        None,
        _disjuncts_from,
    ),
    asker=Label,
    identity=Label,
)

ANSWER: Final = WireForm(
    Answer,
    asker=Label,
    identity=Label,
    items=ContentField(
        Annotated[list[bytes], msgspec.Meta(max_length=ANSWER_ITEMS_MAX)],
        None,
        lambda data, _: notifications_from(data),
    ),
    reports=Annotated[tuple[SourceReport, ...], msgspec.Meta(max_length=REPORTS_MAX)],
    partial=Annotated[bytes, msgspec.Meta(max_length=PARTIAL_BYTES_MAX)],
)


def split_answer(answer: Answer) -> Iterator[RouterMessage]:
    """Yields the wire forms of an answer, the last with the reports. Raises LimitError."""
    asker, identity = answer.asker, answer.identity
    batch: list[bytes] = []
    size = 0
    for each in answer.items:
        batch.append(check_content(bytes(to_msgpack(each))))
        size += len(batch[-1])
        if size >= ANSWER_BYTES_MAX or len(batch) == ANSWER_ITEMS_MAX:
            yield ANSWER.struct(asker, identity, batch)
            batch, size = [], 0
    if batch or answer.reports or answer.partial or answer.is_last:
        yield ANSWER.struct(
            asker, identity, batch, answer.reports, answer.partial, answer.is_last, answer.version
        )


def decode_question(data: msgspec.Raw) -> Ask:
    """Returns a query for a client's sources. Raises as `message_codec.read_request`."""
    return QUESTION.to_message(decode_with(_QUESTION_DECODER, data))  # type: ignore[no-any-return]


def decode_query_message(data: msgspec.Raw) -> Answer | More | Cancel:
    """Returns a message about a query. Raises as `message_codec.read_request`."""
    message = decode_with(_ABOUT_DECODER, data)
    return message if isinstance(message, More | Cancel) else ANSWER.to_message(message)


_QUESTION_DECODER: Final = msgspec.msgpack.Decoder(QUESTION.struct)
_ABOUT_DECODER: Final = decoder_of(ANSWER.struct, More, Cancel)

"""`answer` and `FrameSource`: the rows of a frame that answer a query; a frame as a query source.

A query is one subscription, matched as by `route`; conditions with variables are decided on whole
rows. Source: CU-CS-948-03 §4 (query application).
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame

from contrada.integrations.files.read_options import ReadOptions
from contrada.integrations.spark.transforms.frame_match import Transform, route
from contrada.integrations.spark.transforms.frame_profile import advertisement_of, profile
from contrada.integrations.spark.transforms.frames import NOTIFICATION
from contrada.integrations.spark.transforms.notification_transform import to_notifications
from contrada.model import FilterSet, Notification
from contrada.model.codec import notification_from_msgpack
from contrada.model.rule import Rule
from contrada.routing.router_messages import Offer
from contrada.service import Offered
from contrada.service.query.source import FRESH_S, DescribedSource
from contrada.service.query.source_query import SourceQuery

_KEY = "contrada answer"


def answer(
    question: Any, where: Any = None, *, zone: str | None = None, drop: Iterable[str] = ()
) -> Transform:
    """Returns a transform to the rows that answer a query, unchanged. The query is as for
    `Service.query`, or a `SourceQuery`. `zone` and `drop` are as for `match`. Raises as
    `SourceQuery`, and InputError if a queried column cannot be an attribute.
    """
    asked = question if isinstance(question, SourceQuery) else SourceQuery(question, where)
    has_more = asked.residue is not None or any(each.same for each in asked.alternatives)
    wanted: FilterSet | Rule = asked.filters
    if has_more:
        wanted = Rule(_KEY, asked.filters, str(asked), asked.answers)
    chosen = route({_KEY: wanted}, column=_KEY, zone=zone, drop=drop)

    def answered(frame: DataFrame) -> DataFrame:
        return frame.transform(chosen).drop(_KEY)

    return answered


class FrameSource(DescribedSource):
    """A Spark frame as a query source: `service.offer(None, FrameSource(frame))`. Rows become
    notifications as by `to_notifications`; bad rows answer nothing. Without a `description` its
    `profile` describes the frame, at most every `fresh_s` seconds.
    """

    def __init__(
        self,
        frame: DataFrame,
        *,
        zone: str | None = None,
        drop: Iterable[str] = (),
        description: Offered | None = None,
        fresh_s: float = FRESH_S,
    ) -> None:
        self._frame, self._zone, self._drop = frame, zone, tuple(drop)
        super().__init__(description, fresh_s)

    def answer(self, question: SourceQuery) -> Iterator[Notification]:
        """Yields the answers, a partition at a time. Cost: a Spark job."""
        rows = self._frame.transform(answer(question, zone=self._zone, drop=self._drop))
        reading = ReadOptions(zone=self._zone, drop=frozenset(self._drop))
        made = rows.transform(to_notifications(reading)).where(f"{NOTIFICATION} IS NOT NULL")
        for row in made.select(NOTIFICATION).toLocalIterator(prefetchPartitions=True):
            yield notification_from_msgpack(bytes(row[0]))

    def _describe(self) -> Offer:
        """Derives the description. Cost: a job over the whole frame."""
        return advertisement_of(profile(self._frame, zone=self._zone, drop=self._drop))

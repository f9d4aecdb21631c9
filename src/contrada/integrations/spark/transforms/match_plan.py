"""`plan_of`: the way of matching a base on a frame, and the reason.

All ways give the same keys. Predicates need no Python and are pushed to files, so they are chosen
for a few filters that each have an equal predicate (see `spark_predicates`); an index otherwise.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from contrada.errors import InputError
from contrada.integrations.spark.transforms.filter_bases import Base
from contrada.integrations.spark.transforms.frames import (
    NOTIFICATION,
    SEVERAL,
    NotificationFrame,
    frame_of,
)
from contrada.integrations.spark.transforms.spark_predicates import parts_of, predicate_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

PREDICATES_MAX: Final = 16
"""Subscriptions that Spark predicates match. Beyond it: an index matches them."""

PARTS_MAX: Final = 64
"""Intervals and atoms of all subscriptions that Spark predicates match. Beyond it: an index matches
them, since Java does not compile such large expressions."""

JOIN_COLUMNS: Final = 8
"""Columns that may be sent to workers and back at the cost of joining keys to rows. Measured.
Beyond it, plus `ONE_WAY` for each column in filters: only those columns are sent."""

ONE_WAY: Final = 0.6
"""The cost of a column that is only sent to workers, relative to both directions."""

MatchMethod: TypeAlias = Literal["predicates", "index"]
"""Spark's own predicates, or an index in workers."""


@dataclass(frozen=True, slots=True)
class MatchPlan:
    """The way of matching a base on a frame.

    With `is_whole` all columns are sent to workers and back; otherwise only those in filters are
    sent, and the keys return. `columns` are the attributes of filters that the frame has; of a
    packed frame its one column. `shards` is the number of indexes, 0 for predicates.
    """

    way: MatchMethod
    why: str
    subscriptions: int
    columns: tuple[str, ...]
    shards: int
    predicates: "tuple[Column, ...]"
    frame: NotificationFrame
    is_whole: bool = False

    @property
    def is_packed(self) -> bool:
        """Whether the frame has packed notifications."""
        return self.frame.is_packed

    def __str__(self) -> str:
        by = f"{self.shards} indexes" if self.shards > 1 else self.way
        sent = (
            ""
            if self.way == "predicates"
            else "; rows go to workers " + ("whole" if self.is_whole else "by these columns alone")
        )
        asked = ", ".join(self.columns) or "none"
        return f"{self.subscriptions} subscriptions by {by}: {self.why}; asked for: {asked}{sent}"


def plan_of(
    frame: "DataFrame", base: Base, zone: str | None, drop: Iterable[str], way: MatchMethod | None
) -> MatchPlan:
    """Returns the plan; `way` overrides the choice. Raises InputError for a column in filters that
    cannot be an attribute, and for an unknown or impossible way.
    """
    ways = get_args(MatchMethod)
    if way is not None and way not in ways:
        raise InputError("way", f"found {way!r}, expected one of: {', '.join(ways)}")
    described = frame_of(frame.schema, zone=zone, drop=drop)
    saved = base.saved
    asked = described.select(None if saved.has_residues else saved.names)
    why, predicates = _predicates(base, described, way)
    if way == "predicates" and why:
        raise InputError("way", f"cannot match by predicates: {why}")
    columns = (NOTIFICATION,) if described.is_packed else tuple(each.name for each in asked)
    if why or way == "index":
        shards = len(saved.shards)
        is_whole = _is_whole(frame.schema, described, len(columns))
        return MatchPlan(
            "index", why or "asked for", len(base), columns, shards, (), described, is_whole
        )
    why = "they are few, and each equals a Spark predicate"
    return MatchPlan("predicates", why, len(base), columns, 0, predicates, described)


def _is_whole(schema: "StructType", described: NotificationFrame, asked: int) -> bool:
    """Whether sending whole rows costs less than sending some columns and joining the keys. Only
    plain columns certainly return unchanged.
    """
    if described.is_packed or len(described.attributes) < len(schema.fields):
        return False
    if any(
        each.kind == SEVERAL or each.refused or len(each.path) > 1
        for each in described.attributes.values()
    ):
        return False
    return len(schema.fields) < JOIN_COLUMNS + ONE_WAY * asked


def _predicates(
    base: Base, frame: NotificationFrame, way: MatchMethod | None
) -> "tuple[str, tuple[Column, ...]]":
    """Returns the predicates, or the reason why there are none."""
    most = PREDICATES_MAX if way is None else len(base)
    if base.interests is None or len(base) > most:
        return f"more than {most} of them", ()
    if base.saved.has_residues:
        return "rules leave open what the whole row decides", ()
    if frame.is_packed:
        return "the notifications are packed", ()
    if way is None and sum(map(parts_of, base.interests.values())) > PARTS_MAX:
        return f"their predicates would have more than {PARTS_MAX} parts", ()
    found = []
    for key, interest in base.interests.items():
        predicate = predicate_of(interest, frame)
        if predicate is None:
            return f"no Spark predicate equals {key!r} on these columns", ()
        found.append(predicate)
    return "", tuple(found)

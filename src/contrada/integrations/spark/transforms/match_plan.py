"""Which way a base is matched on a frame, and why.

All ways give the same keys. Predicates need no Python and are pushed to files, so they are taken
for few filters, where each has an equal one (see `predicates`); an index for all others.
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
"""Subscriptions that are matched by Spark predicates. Beyond it: by an index."""

PARTS_MAX: Final = 64
"""Intervals and atoms of all subscriptions that are matched by Spark predicates. Beyond it: by an
index, since Java no longer compiles what Spark makes of them."""

JOIN_COLUMNS: Final = 8
"""Columns that may go to workers and back for what it costs to join the keys to the rows instead.
Measured; beyond it, and `ONE_WAY` for each column asked for: those columns go alone."""

ONE_WAY: Final = 0.6
"""What a column costs that goes to workers only, as a part of what it costs there and back."""

MatchMethod: TypeAlias = Literal["predicates", "index"]
"""How rows are matched: by Spark's own predicates, or by an index in workers."""


@dataclass(frozen=True, slots=True)
class MatchPlan:
    """How a base is matched on a frame.

    With `is_whole` all columns go to workers and back, else those that are asked for go there, and
    the keys come back. `columns` are the attributes that filters ask for and the frame has; of a
    packed frame its one column. `shards` is how many indexes are looked through, 0 for predicates.
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
        """Whether the frame is one of packed notifications."""
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
    """The plan; `way` is that to be taken, None where the best is.

    Raises InputError for a column that filters ask for and that is no attribute, and for a way
    that there is not, or that cannot be taken.
    """
    ways = get_args(MatchMethod)
    if way is not None and way not in ways:
        raise InputError("way", f"found {way!r}, expected one of: {', '.join(ways)}")
    described = frame_of(frame.schema, zone=zone, drop=drop)
    saved = base.saved
    asked = described.asked(None if saved.has_residues else saved.names)
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
    """Whether it costs less to send whole rows than to send some columns and join what comes back.

    Only plain columns are sure to come back as they were.
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
    """Why there are no predicates, "" where there are; and they."""
    most = PREDICATES_MAX if way is None else len(base)
    if base.wishes is None or len(base) > most:
        return f"more than {most} of them", ()
    if base.saved.has_residues:
        return "rules leave open what the whole row decides", ()
    if frame.is_packed:
        return "the notifications are packed", ()
    if way is None and sum(map(parts_of, base.wishes.values())) > PARTS_MAX:
        return f"their predicates would have more than {PARTS_MAX} parts", ()
    found = []
    for key, wish in base.wishes.items():
        predicate = predicate_of(wish, frame)
        if predicate is None:
            return f"no Spark predicate equals {key!r} on these columns", ()
        found.append(predicate)
    return "", tuple(found)

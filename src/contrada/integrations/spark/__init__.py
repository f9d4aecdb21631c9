"""Pipelines and transforms on Spark: files to notifications, matched in Arrow batches.

Spark reads, splits and distributes. The meaning of records and the matching are those of
`contrada.integrations.files` and `contrada.matching`, so the results equal those of `contrada
match`. This room needs the extra `contrada[spark]` and Java 17 or newer; importing this name alone
needs neither.

    from contrada.integrations.spark import match

    frame.transform(match({"cheap": "price < 100 and symbol = 'DIS'"}))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from contrada.integrations.spark.connector.data_source import register
    from contrada.integrations.spark.spark_session import configure
    from contrada.integrations.spark.transforms.archive_replay import replay
    from contrada.integrations.spark.transforms.base_cover import covering
    from contrada.integrations.spark.transforms.detection import (
        detect,
        detect_stream,
        detection_statistics,
    )
    from contrada.integrations.spark.transforms.filter_bases import Base
    from contrada.integrations.spark.transforms.frame_match import match, plan, route
    from contrada.integrations.spark.transforms.frame_profile import profile
    from contrada.integrations.spark.transforms.frame_source import FrameSource, answer
    from contrada.integrations.spark.transforms.notification_transform import to_notifications

# Imported at first use: reading a description needs no PySpark.
_LATER: Final = {
    "FrameSource": "contrada.integrations.spark.transforms.frame_source",
    "answer": "contrada.integrations.spark.transforms.frame_source",
    "Base": "contrada.integrations.spark.transforms.filter_bases",
    "configure": "contrada.integrations.spark.spark_session",
    "covering": "contrada.integrations.spark.transforms.base_cover",
    "detect": "contrada.integrations.spark.transforms.detection",
    "detect_stream": "contrada.integrations.spark.transforms.detection",
    "detection_statistics": "contrada.integrations.spark.transforms.detection",
    "match": "contrada.integrations.spark.transforms.frame_match",
    "plan": "contrada.integrations.spark.transforms.frame_match",
    "profile": "contrada.integrations.spark.transforms.frame_profile",
    "register": "contrada.integrations.spark.connector.data_source",
    "replay": "contrada.integrations.spark.transforms.archive_replay",
    "route": "contrada.integrations.spark.transforms.frame_match",
    "to_notifications": "contrada.integrations.spark.transforms.notification_transform",
}

__all__ = [
    "Base",
    "FrameSource",
    "answer",
    "configure",
    "covering",
    "detect",
    "detect_stream",
    "detection_statistics",
    "match",
    "plan",
    "profile",
    "register",
    "replay",
    "route",
    "to_notifications",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

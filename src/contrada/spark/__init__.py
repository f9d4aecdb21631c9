"""The pipeline on Spark: files to notifications, matched in Arrow batches.

Spark reads, splits and distributes. What a record means and which subscriptions it matches is
decided by the same functions as everywhere else (`contrada.records`, `contrada.matching`), so
that the answers are those of `contrada match`. This room needs the extra `contrada[spark]` and
a Java of at least 17; importing this name alone needs neither.

    from contrada.spark import match

    frame.transform(match({"cheap": "price < 100 and symbol = 'DIS'"}))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from contrada.spark.connector.source import register
    from contrada.spark.session import configure
    from contrada.spark.transforms.answering import FrameSource, answer
    from contrada.spark.transforms.bases import Base
    from contrada.spark.transforms.covering import covering
    from contrada.spark.transforms.detecting import detect, detect_stream, detection_statistics
    from contrada.spark.transforms.matching import match, plan, route
    from contrada.spark.transforms.notifying import to_notifications
    from contrada.spark.transforms.profiling import profile
    from contrada.spark.transforms.replaying import replay

# Imported when first used: what needs PySpark is not asked of who only reads a description.
_LATER: Final = {
    "FrameSource": "contrada.spark.transforms.answering",
    "answer": "contrada.spark.transforms.answering",
    "Base": "contrada.spark.transforms.bases",
    "configure": "contrada.spark.session",
    "covering": "contrada.spark.transforms.covering",
    "detect": "contrada.spark.transforms.detecting",
    "detect_stream": "contrada.spark.transforms.detecting",
    "detection_statistics": "contrada.spark.transforms.detecting",
    "match": "contrada.spark.transforms.matching",
    "plan": "contrada.spark.transforms.matching",
    "profile": "contrada.spark.transforms.profiling",
    "register": "contrada.spark.connector.source",
    "replay": "contrada.spark.transforms.replaying",
    "route": "contrada.spark.transforms.matching",
    "to_notifications": "contrada.spark.transforms.notifying",
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

"""Pipelines and transforms on Spark: files to notifications, matched in Arrow batches.

The results equal those of `contrada match`. This room needs the extra `contrada[spark]` and Java 17
or newer; importing this name alone needs neither.
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
_MODULES: Final = {
    "connector.data_source": ("register",),
    "spark_session": ("configure",),
    "transforms.archive_replay": ("replay",),
    "transforms.base_cover": ("covering",),
    "transforms.detection": ("detect", "detect_stream", "detection_statistics"),
    "transforms.filter_bases": ("Base",),
    "transforms.frame_match": ("match", "plan", "route"),
    "transforms.frame_profile": ("profile",),
    "transforms.frame_source": ("FrameSource", "answer"),
    "transforms.notification_transform": ("to_notifications",),
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
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

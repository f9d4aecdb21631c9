"""Messages and values of the inner packages are frozen, as threads and embedded brokers share them.

Classes that hold a state of their own are named here, so a new one is a decision.
"""

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, Final

import msgspec

PACKAGES: Final = ("model", "matching", "routing", "delivery")

WITH_STATE: Final = {
    "delivery.durable_log.DurableLogStatistics",
    "delivery.durable_table.LogOwner",
    "delivery.publishers.Publisher",
    "delivery.publishers.PublisherSession",
    "delivery.redelivery.HeldRecords",
    "delivery.shipment_handler.ShipmentHandler",
    "routing.assembly.split_pattern.Segment",
    "routing.tables.poset.Node",
}


def _public_classes() -> Iterator[tuple[str, bool]]:
    """Yields each structure and dataclass that more than its module uses, and if it is frozen."""
    for package in PACKAGES:
        path = importlib.import_module(f"contrada.{package}").__path__
        for found in pkgutil.walk_packages(path, f"contrada.{package}."):
            for name, each in vars(importlib.import_module(found.name)).items():
                of_module = isinstance(each, type) and each.__module__ == found.name
                if not of_module or name.startswith("_"):
                    continue
                place = f"{found.name.removeprefix('contrada.')}.{name}"
                if issubclass(each, msgspec.Struct):
                    yield place, each.__struct_config__.frozen
                elif dataclasses.is_dataclass(each):
                    parameters: Any = vars(each)["__dataclass_params__"]
                    yield place, parameters.frozen


def test_messages_and_values_are_frozen() -> None:
    """A message in a queue, or a value that is a key, would change in the hands of its sender."""
    assert {place for place, is_frozen in _public_classes() if not is_frozen} == WITH_STATE

"""Disseminations: other ways than the service's own on which obvents of some classes travel.

A class chooses one by name; who publishes or subscribes it has registered what that name stands
for, with the service that he uses (`Service.register_dissemination`).

Source: EPFL 2503 §5.2.2 (a class of obvents says how these are transmitted), §6.
"""

from contrada.errors import ServiceError
from contrada.model import Notification


def dissemination_of(item: object) -> str | None:
    """The name of the dissemination that what is published chose; None: the service's own.

    It is what `chosen_dissemination` of its class says. Raises what that raises.
    """
    kind = type(item)
    if kind is dict or kind is Notification:
        return None
    if not hasattr(kind, "chosen_dissemination"):
        return None
    chosen: str | None = item.chosen_dissemination()  # type: ignore[attr-defined]
    return chosen


def not_registered(name: str) -> ServiceError:
    """The error for a dissemination that is not registered with this service."""
    return ServiceError(
        f"the dissemination {name!r} is not registered with this service: "
        f"service.register_dissemination({name!r}, node)"
    )

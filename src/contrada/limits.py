"""`Limits`: all limits that a user can set, by section.

ct.connect(limits=ct.Limits(service=ct.ServiceLimits(queue_notifications_max=100)))

`read_limits` takes them from the table `[limits]` of a file and from the environment:
`CONTRADA_LIMITS_ROUTER_SERVERS_MAX=16` is `[limits.router] servers_max = 16`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from contrada.service.service_limits import CoreLimits
from contrada.service.settings import sections_of

if TYPE_CHECKING:  # An embedded service loads nothing of a broker.
    from contrada.net.broker.broker_limits import BrokerLimits
    from contrada.net.client.client_limits import ClientLimits

SECTIONS: Final = {
    "service": "contrada.service.service_limits:ServiceLimits",
    "router": "contrada.routing.router_limits:RouterLimits",
    "delivery": "contrada.delivery.delivery_limits:DeliveryLimits",
    "patterns": "contrada.patterns.runs:PatternLimits",
    "client": "contrada.net.client.client_limits:ClientLimits",
    "broker": "contrada.net.broker.broker_limits:BrokerLimits",
}
"""The class of each section, imported at first use."""

PREFIX: Final = "CONTRADA_LIMITS_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(CoreLimits):
    """Limits of any service; a section of another kind of service has no effect."""

    client: "ClientLimits | None" = None
    """Limits of a client of a broker; None: the defaults."""
    broker: "BrokerLimits | None" = None
    """Limits of a broker, also of one embedded in a service with neighbours; None: the defaults."""


def read_limits(
    found: Mapping[str, Any], environ: Mapping[str, str], source: str = "limits"
) -> Limits:
    """The limits of a table and of the environment, which wins.

    Raises InputError with the key, its value and the known keys; `source` names the table.
    """
    types = {}
    for name, place in SECTIONS.items():
        module, _, kind = place.partition(":")
        if name in found or any(key.startswith(f"{PREFIX}{name.upper()}_") for key in environ):
            types[name] = getattr(import_module(module), kind)
    return Limits(**sections_of(types, SECTIONS, found, environ, PREFIX, source))

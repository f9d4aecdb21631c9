"""Limits with which what was lost is tried again at once, and `connect` with them."""

from typing import Any, Final

import contrada as ct
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.client.client_limits import ClientLimits
from contrada.service import Service
from contrada.service.backoff import BackoffLimits

SOON: Final = BackoffLimits(first_s=0.001, longest_s=0.02)
BROKER_LIMITS: Final = BrokerLimits(backoff=SOON)
LIMITS: Final = ct.Limits(client=ClientLimits(backoff=SOON), broker=BROKER_LIMITS)


def connect(*address: Any, **options: Any) -> Service:
    """A service that connects again at once, and links again at once."""
    return ct.connect(*address, limits=LIMITS, **options)

"""Contrada: publish/subscribe with exact filters, typed events, patterns and queries.

import contrada as ct

f = ct.Filter("price < 100 and symbol = 'DIS'")
f.matches(ct.Notification({"symbol": "DIS", "price": 99.5}))
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from warnings import warn

from contrada import errors, ops
from contrada.model import (
    Advertisement,
    Constraint,
    Envelope,
    Filter,
    FilterSet,
    Notification,
    Pattern,
    Product,
    Query,
    Value,
    ValueSet,
    from_json,
    from_msgpack,
    parse,
    to_json,
    to_msgpack,
)
from contrada.model.algebra.relations import (
    Explanation,
    covers,
    equal,
    explain,
    matches,
    meets,
    merge,
    witness,
)
from contrada.model.extensions import ExtendedOperator, ExtendedType
from contrada.renamed_modules import RenamedModules

if TYPE_CHECKING:
    from contrada.connections import connect, connect_sync
    from contrada.delivery.delivery_limits import DeliveryLimits
    from contrada.delivery.durable_log import OnFull, Retention
    from contrada.integrations.sources.file_source import FileSource
    from contrada.integrations.sources.table_source import TableSource
    from contrada.limits import Limits
    from contrada.matching import Index
    from contrada.model.algebra.simplification import simplify
    from contrada.net.broker.broker_limits import BrokerLimits
    from contrada.net.client.client_limits import ClientLimits
    from contrada.patterns import Match
    from contrada.patterns.pattern_matcher import PatternMatcher
    from contrada.patterns.runs import PatternLimits
    from contrada.routing.aggregation import Aggregate
    from contrada.routing.router_limits import RouterLimits
    from contrada.service import DurableSubscription, Service, Subscription
    from contrada.service.query.source import FunctionSource, RecordSource
    from contrada.service.query.source_query import SourceQuery
    from contrada.service.security.signatures import Signer, Verifier
    from contrada.service.service_limits import ServiceLimits
    from contrada.service.sync import SyncService
    from contrada.typed import (
        Alias,
        CausalOrder,
        Certified,
        Disseminated,
        Expiring,
        FIFOOrder,
        Obvent,
        ObventPattern,
        Prioritized,
        Published,
        Reliable,
        Structural,
        TotalOrder,
        Tuple,
        Unreliable,
        obvent,
        published_by,
        qos_of,
    )
    from contrada.typed.handles import Handle, ThreadPolicy
    from contrada.typed.references import Export, Proxy
    from contrada.typed.remote_calls import Reference

# Imported at first use: reading filters needs no index, matching needs no event loop.
_LATER: Final = {
    **dict.fromkeys(("Service", "DurableSubscription", "Subscription"), "contrada.service"),
    **dict.fromkeys(
        (
            *("Alias", "CausalOrder", "Certified", "Disseminated", "FIFOOrder", "Obvent"),
            "ObventPattern",
            *("Prioritized", "Published", "Reliable", "Structural", "Expiring", "TotalOrder"),
            *("Tuple", "Unreliable", "obvent", "published_by", "qos_of"),
        ),
        "contrada.typed",
    ),
    "FileSource": "contrada.integrations.sources.file_source",
    "TableSource": "contrada.integrations.sources.table_source",
    "SourceQuery": "contrada.service.query.source_query",
    **dict.fromkeys(("FunctionSource", "RecordSource"), "contrada.service.query.source"),
    "Aggregate": "contrada.routing.aggregation",
    **dict.fromkeys(("Handle", "ThreadPolicy"), "contrada.typed.handles"),
    **dict.fromkeys(("Export", "Proxy"), "contrada.typed.references"),
    "SyncService": "contrada.service.sync",
    **dict.fromkeys(("Signer", "Verifier"), "contrada.service.security.signatures"),
    "Reference": "contrada.typed.remote_calls",
    "Index": "contrada.matching",
    "Match": "contrada.patterns",
    "OnFull": "contrada.delivery.durable_log",
    "PatternMatcher": "contrada.patterns.pattern_matcher",
    "Retention": "contrada.delivery.durable_log",
    "Limits": "contrada.limits",
    "BrokerLimits": "contrada.net.broker.broker_limits",
    "ClientLimits": "contrada.net.client.client_limits",
    "DeliveryLimits": "contrada.delivery.delivery_limits",
    "PatternLimits": "contrada.patterns.runs",
    "RouterLimits": "contrada.routing.router_limits",
    "ServiceLimits": "contrada.service.service_limits",
    "connect": "contrada.connections",
    "connect_sync": "contrada.connections",
    "simplify": "contrada.model.algebra.simplification",
}

__all__ = [
    "TableSource",
    "RecordSource",
    "SourceQuery",
    "FunctionSource",
    "FileSource",
    "Aggregate",
    "Advertisement",
    "Alias",
    "SyncService",
    "CausalOrder",
    "Certified",
    "Disseminated",
    "Constraint",
    "Envelope",
    "Explanation",
    "Export",
    "ExtendedOperator",
    "ExtendedType",
    "FIFOOrder",
    "Filter",
    "FilterSet",
    "Handle",
    "BrokerLimits",
    "ClientLimits",
    "DeliveryLimits",
    "Limits",
    "PatternLimits",
    "RouterLimits",
    "ServiceLimits",
    "Index",
    "Match",
    "Notification",
    "Obvent",
    "ObventPattern",
    "OnFull",
    "Pattern",
    "PatternMatcher",
    "Prioritized",
    "Product",
    "Proxy",
    "Published",
    "Query",
    "Reference",
    "Reliable",
    "Retention",
    "Service",
    "Signer",
    "DurableSubscription",
    "Structural",
    "Subscription",
    "ThreadPolicy",
    "Expiring",
    "TotalOrder",
    "Tuple",
    "Unreliable",
    "Value",
    "ValueSet",
    "Verifier",
    "connect",
    "connect_sync",
    "covers",
    "equal",
    "errors",
    "explain",
    "from_json",
    "from_msgpack",
    "matches",
    "meets",
    "merge",
    "obvent",
    "ops",
    "parse",
    "published_by",
    "qos_of",
    "simplify",
    "to_json",
    "to_msgpack",
    "witness",
]


_RENAMED: Final = {
    "BlockingService": "SyncService",
    "Prioritary": "Prioritized",
    "Question": "SourceQuery",
    "StandingSubscription": "DurableSubscription",
    "Timely": "Expiring",
    **{name: f"ops.{name}" for name in ops.__all__ if name != "matches"},
}
"""Former names, which give a DeprecationWarning."""

sys.meta_path.append(RenamedModules())


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("contrada")
    if name in _RENAMED:
        warn(f"ct.{name} is ct.{_RENAMED[name]} now", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
        if name.startswith("ops."):
            return getattr(ops, name.removeprefix("ops."))
    if name not in _LATER:
        raise AttributeError(f"module 'contrada' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LATER[name]), name)
    return found


def __dir__() -> list[str]:
    hidden = (name for name in globals() if name[:2] == "__")
    return sorted({*hidden, *__all__, "__version__"})

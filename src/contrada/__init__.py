"""Contrada: publish/subscribe with exact filters, typed events, patterns and queries.

import contrada as ct

f = ct.Filter("price < 100 and symbol = 'DIS'")
f.matches(ct.Notification({"symbol": "DIS", "price": 99.5}))
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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
from contrada.renamed_modules import RenamedModules, former_name

if TYPE_CHECKING:
    from contrada.app import App
    from contrada.connections import connect, connect_sync
    from contrada.delivery.delivery_limits import DeliveryLimits
    from contrada.delivery.retention import OnFull, Retention
    from contrada.integrations.sources.file_source import FileSource
    from contrada.integrations.sources.table_source import TableSource
    from contrada.limits import Limits
    from contrada.log_handler import LogHandler
    from contrada.matching.index import Index
    from contrada.model.algebra.match_explanation import MatchExplanation
    from contrada.model.algebra.simplification import simplify
    from contrada.net.broker.broker_limits import BrokerLimits
    from contrada.net.client.client_limits import ClientLimits
    from contrada.patterns import Match
    from contrada.patterns.pattern_engine import PatternMatcher
    from contrada.patterns.runs import PatternLimits
    from contrada.routing.aggregation import Aggregate
    from contrada.routing.router_limits import RouterLimits
    from contrada.service import DurableRecord, DurableSubscription, Service, Subscription
    from contrada.service.query.source import FunctionSource, RecordSource
    from contrada.service.query.source_query import SourceQuery
    from contrada.service.security.signatures import Signer, Verifier, VerifierLimits
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
    name: f"contrada.{module}"
    for module, names in {
        "app": "App",
        "connections": "connect connect_sync",
        "delivery.delivery_limits": "DeliveryLimits",
        "delivery.retention": "OnFull Retention",
        "integrations.sources.file_source": "FileSource",
        "integrations.sources.table_source": "TableSource",
        "limits": "Limits",
        "log_handler": "LogHandler",
        "matching.index": "Index",
        "model.algebra.match_explanation": "MatchExplanation",
        "model.algebra.simplification": "simplify",
        "net.broker.broker_limits": "BrokerLimits",
        "net.client.client_limits": "ClientLimits",
        "patterns": "Match",
        "patterns.pattern_engine": "PatternMatcher",
        "patterns.runs": "PatternLimits",
        "routing.aggregation": "Aggregate",
        "routing.router_limits": "RouterLimits",
        "service": "DurableRecord DurableSubscription Service Subscription",
        "service.query.source": "FunctionSource RecordSource",
        "service.query.source_query": "SourceQuery",
        "service.security.signatures": "Signer Verifier VerifierLimits",
        "service.service_limits": "ServiceLimits",
        "service.sync": "SyncService",
        "typed": "Alias CausalOrder Certified Disseminated Expiring FIFOOrder Obvent ObventPattern"
        " Prioritized Published Reliable Structural TotalOrder Tuple Unreliable obvent published_by"
        " qos_of",
        "typed.handles": "Handle ThreadPolicy",
        "typed.references": "Export Proxy",
        "typed.remote_calls": "Reference",
    }.items()
    for name in names.split()
}

# Services
__all__ = ["App", "Service", "Subscription", "DurableRecord", "DurableSubscription", "SyncService"]
__all__ += [
    "LogHandler",
    "connect",
    "OnFull",
    "Retention",
    "Signer",
    "Verifier",
    "connect_sync",
    "errors",
]
__all__ += ["BrokerLimits", "ClientLimits", "DeliveryLimits", "Limits", "PatternLimits"]
__all__ += ["RouterLimits", "ServiceLimits", "VerifierLimits"]
# Filters and their algebra
__all__ += ["Advertisement", "Constraint", "Envelope", "Explanation", "ExtendedOperator"]
__all__ += ["ExtendedType", "Filter", "FilterSet", "Index", "MatchExplanation", "Notification"]
__all__ += ["Product", "Query"]
__all__ += ["Value", "ValueSet", "covers", "equal", "explain", "from_json", "from_msgpack"]
__all__ += ["matches", "meets", "merge", "ops", "parse", "simplify", "to_json", "to_msgpack"]
__all__ += ["witness"]
# Patterns, queries and sources
__all__ += ["Match", "Pattern", "PatternMatcher", "Aggregate", "FileSource", "FunctionSource"]
__all__ += ["RecordSource", "SourceQuery", "TableSource"]
# Typed events
__all__ += ["Alias", "CausalOrder", "Certified", "Disseminated", "Expiring", "Export", "FIFOOrder"]
__all__ += ["Handle", "Obvent", "ObventPattern", "Prioritized", "Proxy", "Published", "Reference"]
__all__ += ["Reliable", "Structural", "ThreadPolicy", "TotalOrder", "Tuple", "Unreliable", "obvent"]
__all__ += ["published_by", "qos_of"]

sys.meta_path.insert(0, RenamedModules())  # Before a stale folder of a former package.


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("contrada")
    if name not in _LATER:
        return former_name(__name__, name, stacklevel=3)
    found = globals()[name] = getattr(import_module(_LATER[name]), name)
    return found


def __dir__() -> list[str]:
    hidden = (name for name in globals() if name[:2] == "__")
    return sorted({*hidden, *__all__, "__version__"})

"""`RenamedModules`: an import hook that finds the packages of version 0.0 under their new names;
`former_name` and `former_method`: the same for their public names and methods.

`from contrada.records import Rows` gives `contrada.integrations.files.CsvRows`, with two
DeprecationWarnings.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final
from warnings import warn

RENAMED: Final = {
    "collections": "typed.collections",
    "dialects": "integrations.dialects",
    "extensions": "model.extensions",
    "feeds": "integrations.feeds",
    "gateway": "integrations.http",
    "query": "",
    "records": "integrations.files",
    "runtime": "service",
    "security": "service.security",
    "simulation": "lab.simulation",
    "spark": "integrations.spark",
    "xml": "integrations.documents",
}
"""Former packages below `contrada` and the packages that hold their public names today."""

_OPERATORS: Final = (
    "absent any_but between cidr contains eq exists ge gt in_ le lt ne none_of not_in prefix suffix"
    " wildcard"
)

RENAMED_NAMES: Final = {
    "contrada": {
        "BlockingService": "SyncService",
        "DataSource": "service.query.source.DataSource",
        "Prioritary": "Prioritized",
        "Question": "SourceQuery",
        "StandingSubscription": "DurableSubscription",
        "Timely": "Expiring",
        **{name: f"ops.{name}" for name in _OPERATORS.split()},
    },
    "contrada.integrations.files": {
        "Reading": "integrations.files.ReadOptions",
        "Rows": "integrations.files.CsvRows",
    },
    "contrada.integrations.http": {"beside": "integrations.http.local_services"},
    "contrada.matching": {"Index": "Index", "IndexStatistics": "matching.index.IndexStatistics"},
    "contrada.net": {
        "Address": "net.wire.address.Address",
        "Broker": "net.broker.broker.Broker",
        "BrokerStatistics": "net.broker.broker.BrokerStatistics",
        "PORT_DEFAULT": "net.wire.address.PORT_DEFAULT",
        "TcpService": "net.client.tcp_service.TcpService",
        "Tls": "net.wire.tls.Tls",
        "connect": "connect",
        "connect_sync": "connect_sync",
        "parse_address": "net.wire.address.parse_address",
        "parse_addresses": "net.wire.address.parse_addresses",
    },
    "contrada.service": {
        "Askable": "service.query_interface.SupportsAnswer",
        "BlockingService": "SyncService",
        "BlockingSubscription": "service.sync.SyncSubscription",
        "EmbeddedService": "service.embedded_service.EmbeddedService",
        "Kept": "DurableRecord",
        "StandingOptions": "service.DurableOptions",
        "StandingSubscription": "DurableSubscription",
        "is_predicate": "service.requests.is_predicate",
        "is_promised": "service.is_above_best_effort",
        "pattern_of": "service.requests.pattern_of",
        "promised": "service.with_delivery",
        "transmitted": "service.with_transmission",
    },
    "contrada.typed": {"Prioritary": "Prioritized", "Timely": "Expiring"},
    "contrada.typed.collections": {"Asked": "typed.collections.ElementRule"},
}
"""Former public names in today's packages, and their places below `contrada`."""

RENAMED_METHODS: Final = {"give_back": "nack"}
"""Former methods, and their names today."""


def former_name(package: str, name: str, *, stacklevel: int = 2) -> Any:
    """Returns the object with a former name, with a DeprecationWarning; a package has
    `__getattr__ = partial(former_name, __name__)`. Raises AttributeError for any other name.
    """
    place = RENAMED_NAMES[package].get(name)
    if place is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    warn(f"{package}.{name} is contrada.{place} now", DeprecationWarning, stacklevel=stacklevel)
    module, _, attribute = f"contrada.{place}".rpartition(".")
    return getattr(import_module(module), attribute)


def former_method(owner: object, name: str) -> Any:
    """Returns the method with a former name, with a DeprecationWarning; a class has it as its
    `__getattr__`. Raises AttributeError for any other name.
    """
    kind, present = type(owner).__name__, RENAMED_METHODS.get(name)
    if present is None:
        raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=owner)
    warn(f"{kind}.{name} is {present} now", DeprecationWarning, stacklevel=2)
    return getattr(owner, present)


class RenamedModules(MetaPathFinder, Loader):
    """Finds a former package; the module that is imported is the new one."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a former package, else None."""
        root, _, name = fullname.partition(".")
        return ModuleSpec(fullname, self) if root == "contrada" and name in RENAMED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty module, which `exec_module` replaces."""
        return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Puts the new package in the place of the former one."""
        old = module.__name__
        new = ".".join(filter(None, ("contrada", RENAMED[old.partition(".")[2]])))
        warn(f"{old} is {new} now", DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(new)

"""`RenamedModules`: an import hook that finds the packages of version 0.0 under their new names.

`import contrada.records` gives `contrada.integrations.files`, with a DeprecationWarning.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final
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

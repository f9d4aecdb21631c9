"""`LogSource`: the log source of a Sigma rule, and the names of its attributes.

`log_sources.toml` has those of Windows: a category is an event of Sysmon or PowerShell, a service
is a channel of the event log. Both constraints apply in addition to the rule's own. Other log
sources add no constraint: subscribers must then select the events themselves, and a note in the
rule states this.

Source: Sigma specification 2.1.0, appendix taxonomy (log sources of Windows; field names).
"""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from contrada.integrations.dialects.sigma.sigma_refusals import shorten
from contrada.integrations.dialects.yaml_documents import Document
from contrada.model.rule import Note

FIELDS: Final[Mapping[str | None, str]] = {"Provider_Name": "SourceName"}
"""Fields of Windows rules that events have under another name."""

UNKNOWN: Final = "a log source that constrains nothing"
"""The note of a rule if its log source, or a part of it, is in no table."""


class _Windows(NamedTuple):
    """The channels and the numbers of each category; the channels of each service."""

    categories: dict[str, tuple[list[str], list[int]]]
    services: dict[str, list[str]]


@cache
def windows() -> _Windows:
    """Returns the log sources of Windows."""
    table = tomllib.loads(Path(__file__).with_name("log_sources.toml").read_text("utf-8"))
    categories = {
        name: (group["channels"], numbers)
        for group in table["categories"]
        for name, numbers in group["events"].items()
    }
    return _Windows(categories, table["services"])


@dataclass(frozen=True, slots=True)
class LogSource:
    """The parts of a log source in small letters, empty if not given."""

    product: str = ""
    category: str = ""
    service: str = ""

    @classmethod
    def of(cls, given: Mapping[Any, Any]) -> "LogSource":
        """Returns the log source of a rule. Its other members are for people."""
        named = (given.get(part) for part in ("product", "category", "service"))
        return cls(*("" if part is None else shorten(str(part)).lower() for part in named))

    @property
    def is_windows(self) -> bool:
        """Whether the tables apply to it."""
        return self.product == "windows"

    def constraints(self) -> list[Document]:
        """Returns the constraints on its events as selections, all of which must match."""
        found: list[Document] = []
        if self.is_windows and self.category in windows().categories:
            channels, numbers = windows().categories[self.category]
            found.append({"Channel": [*channels], "EventID": [*numbers]})
        if self.is_windows and self.service in windows().services:
            found.append({"Channel": [*windows().services[self.service]]})
        return found

    def includes(self, other: "LogSource") -> bool:
        """Whether all parts that this one has are those of the other one."""
        parts = zip(astuple(self), astuple(other), strict=True)
        return all(part in ("", held) for part, held in parts)

    def shown(self) -> str:
        """Returns the parts that it has, for people."""
        return ", ".join(f"{name} {part}" for name, part in asdict(self).items() if part)

    def notes(self) -> tuple[Note, ...]:
        """Returns notes on the parts of a log source that constrain nothing."""
        if not self.is_windows or not (self.category or self.service):
            return (Note(UNKNOWN, self.shown() or "none is named"),)
        tables = (("category", windows().categories), ("service", windows().services))
        parts = ((name, getattr(self, name), table) for name, table in tables)
        idle = [f"{name} {part}" for name, part, table in parts if part and part not in table]
        return (Note(UNKNOWN, ", ".join(idle)),) if idle else ()

    def attribute(self, field: str) -> str:
        """Returns the attribute of a rule's field."""
        return FIELDS.get(field, field) if self.is_windows else field

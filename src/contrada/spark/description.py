"""A pipeline as a user describes it in a TOML file.

    subscriptions = "../subscriptions/operations.filters"
    output = "{out}/pipeline"
    publish = "contrada://127.0.0.1:7655"       # optional

    [parameters]                                # what {out} stands for, unless set otherwise
    out = "../../out"

    [[source]]
    name = "flights"
    format = "csv"                              # csv, json (lines) or xml
    paths = ["{out}/flights.csv"]               # globs
    types = { tailnum = "text", time_hour = "time" }
    absent = ["NA"]
    add = { kind = "flight" }
    time = "time_hour"

Paths are relative to the file that names them. `entries` names the repeated element of XML;
`type_marks` makes a typed publication, the most general type first, or `obvent` names a class
(`module:Class`) that knows its marks. The options' meanings: `contrada.records.Reading`.
"""

import glob
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from contrada.errors import ContradaError, ExtensionError, InputError, InvalidObventError
from contrada.extensions.loading import object_named
from contrada.model import mark_name
from contrada.records import Reading, Subscriptions, check_name_of
from contrada.records.subscriptions import load_subscriptions, read_text

_PARAMETER: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_TOML_PLACE: Final = re.compile(r"^(.*) \(at line (\d+), column (\d+)\)$", re.DOTALL)
_MARK_PREFIX: Final = mark_name("")


@dataclass(frozen=True, slots=True)
class Source:
    """Files of one kind, and how their records are read."""

    name: str
    format: str
    files: tuple[Path, ...]
    reading: Reading


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Sources, subscriptions, and where the results go."""

    sources: tuple[Source, ...]
    subscriptions: Subscriptions
    output: Path
    publish: str | None = None

    @property
    def matches(self) -> Path:
        """The Parquet directory of the matches."""
        return self.output / "matches"

    @property
    def quarantine(self) -> Path:
        """The Parquet directory of the records that could not be read."""
        return self.output / "quarantine"


class _Source(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    name: str
    format: Literal["csv", "tsv", "json", "jsonl", "xml"]
    paths: list[str]
    types: dict[str, str] = {}
    absent: list[str] = []
    entries: str | None = None
    add: dict[str, Any] = {}
    time: str | None = None
    type_marks: list[str] = []
    obvent: str | None = None
    rename: dict[str, str] = {}
    drop: list[str] = []
    zone: str | None = None
    delimiter: str = ","
    quote: str = '"'


class _Pipeline(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    subscriptions: str
    output: str
    source: list[_Source]
    publish: str | None = None
    parameters: dict[str, str] = {}


def read_pipeline(path: Path, settings: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline that a file describes; `settings` replace its parameters.

    Raises InputError with the place for what is malformed, for paths that name no file, for an
    output that cannot be written, and for errors in the file of subscriptions.
    """
    described = _described(path)
    filled = _Filled(path, {**described.parameters, **(settings or {})})
    names = [source.name for source in described.source]
    if not names or len(set(names)) < len(names):
        raise InputError(str(path), f"found the sources {names}, expected one or more, named apart")
    output = filled.path(described.output)
    _check_writable(output)
    return Pipeline(
        tuple(_source(source, filled) for source in described.source),
        load_subscriptions(filled.path(described.subscriptions)),
        output,
        filled.text(described.publish) if described.publish else None,
    )


def _check_writable(output: Path) -> None:
    """Find out before a long run, and without making anything, that nothing can be kept."""
    there = next(path for path in (output, *output.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise InputError(str(output), f"cannot be written: {there} is no directory to write into")


def _described(path: Path) -> _Pipeline:
    text = read_text(path)
    try:
        return msgspec.convert(tomllib.loads(text), _Pipeline)
    except tomllib.TOMLDecodeError as error:
        place = _TOML_PLACE.match(str(error))
        if place is None:
            raise InputError(str(path), str(error)) from None
        reason, line, column = place.groups()
        raise InputError(str(path), reason, int(line), int(column)) from None
    except msgspec.ValidationError as error:
        raise InputError(str(path), str(error)) from None


@dataclass(frozen=True, slots=True)
class _Filled:
    """Fills in parameters and makes paths relative to the describing file."""

    described_in: Path
    parameters: Mapping[str, str]

    def text(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            name = match.group(1)
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                reason = f"found the parameter {{{name}}}, expected one of: {known}"
                raise InputError(str(self.described_in), reason)
            return self.parameters[name]

        return _PARAMETER.sub(value, text)

    def path(self, text: str) -> Path:
        return Path(os.path.normpath(self.described_in.parent / self.text(text)))

    def files(self, patterns: list[str]) -> tuple[Path, ...]:
        files: dict[Path, None] = {}
        for pattern in patterns:
            found = [Path(name) for name in sorted(glob.glob(str(self.path(pattern))))]
            found = [file for file in found if file.is_file()]
            if not found:
                reason = f"found no file for {str(self.path(pattern))!r}"
                raise InputError(str(self.described_in), reason)
            for file in found:
                check_name_of(file)
            files.update(dict.fromkeys(found))
        return tuple(files)


def _source(source: _Source, filled: _Filled) -> Source:
    place = f"{filled.described_in}: source {source.name!r}"
    if source.entries is not None and source.format not in ("xml", "json"):
        raise InputError(place, "entries are elements of XML, or of an array in JSON")
    if source.type_marks and source.obvent:
        raise InputError(place, "found type_marks and obvent, expected one of them")
    if not source.paths:
        raise InputError(place, "found no paths, expected one or more")
    marks = _obvent_marks(source.obvent) if source.obvent else tuple(source.type_marks)
    try:
        reading = Reading(
            types=source.types,
            absent=frozenset(source.absent),
            entries=source.entries,
            add=source.add,
            time=source.time,
            marks=marks,
            rename=source.rename,
            drop=frozenset(source.drop),
            zone=source.zone,
            delimiter=source.delimiter,
            quote=source.quote,
        )
    except ContradaError as error:
        raise InputError(place, str(error)) from None
    return Source(source.name, source.format, filled.files(source.paths), reading)


def _obvent_marks(reference: str) -> tuple[str, ...]:
    """The type names that a class of obvents asks for, by way of its filter."""
    try:
        obvent: Any = object_named(reference)
        names = obvent.to_filters().sets
    except ExtensionError as error:
        raise InvalidObventError(reference, error.reason) from error
    except Exception as error:
        said = f"its filters cannot be had: {type(error).__name__}: {error}"
        raise InvalidObventError(reference, said) from error
    return tuple(
        name.removeprefix(_MARK_PREFIX) for name in sorted(names) if name.startswith(_MARK_PREFIX)
    )

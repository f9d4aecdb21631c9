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

Paths are relative to the file that names them, but where they begin with a parameter that is set
from outside: then to where one stands. `type_marks` makes a typed publication, the most general
type first, or `obvent` names a class (`module:Class`) that knows its marks. All keys are in
docs/pipeline.md; the options' meanings: `contrada.records.Reading`.
"""

import glob
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from contrada.errors import ContradaError, ExtensionError, InputError, InvalidObventError
from contrada.extensions.loading import object_named
from contrada.model import mark_name
from contrada.records import Reading, Subscriptions, check_name_of
from contrada.records.settings import checked, read_toml
from contrada.records.subscriptions import load_subscriptions, read_text

_PARAMETER: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MARK_PREFIX: Final = mark_name("")

PROGRESS_FILE: Final = "published.json"
"""Where in the output it stands how much of the matches is published."""

_OWN_NAMES: Final = ("matches", "quarantine", PROGRESS_FILE)
_OWN_FILES: Final = ("part-", "_", ".")


@dataclass(frozen=True, slots=True)
class Source:
    """What is read, and how its records are.

    `paths` are as Spark takes them: files, directories, globs, addresses. The formats `csv`, `tsv`,
    `json`, `jsonl` and `xml` are read as `contrada match` does; every other one is Spark's, with
    its `options`, of `paths` or of a `table`. Of such rows `of` says what a notification is made of
    (see `to_notifications`), and `column` where it stands.
    """

    name: str
    format: str
    files: tuple[Path, ...]
    reading: Reading
    paths: tuple[str, ...] = ()
    table: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    of: str = "wide"
    column: str | None = None


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
    described = checked(str(path), read_toml(path), _Pipeline)
    settings = settings or {}
    known = {*described.parameters, *_PARAMETER.findall(read_text(path))}
    for name in settings:
        if name not in known:
            expected = ", ".join(sorted(known)) or "none, for it has no parameters"
            raise InputError("--set", f"found the parameter {name!r}, expected one of: {expected}")
    filled = _Filled(path, {**described.parameters, **settings}, frozenset(settings))
    names = [source.name for source in described.source]
    if not names or len(set(names)) < len(names):
        raise InputError(str(path), f"found the sources {names}, expected one or more, named apart")
    output = filled.path(described.output)
    _check_writable(output)
    _check_own(output)
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


def _check_own(output: Path) -> None:
    """Refuse a folder that holds what no run has written, for a run replaces what is there."""
    if not output.exists():
        return
    folders = (output / "matches", output / "quarantine")
    inside = [each for folder in folders if folder.is_dir() for each in folder.iterdir()]
    others = [each for each in output.iterdir() if not each.name.startswith((*_OWN_NAMES, "."))]
    others += [each for each in inside if not each.name.startswith(_OWN_FILES)]
    if others:
        names = ", ".join(sorted(each.name for each in others)[:3])
        reason = f"found {names}, expected a folder of its own: a run replaces what is there"
        raise InputError(str(output), reason)


@dataclass(frozen=True, slots=True)
class _Filled:
    """Fills in parameters and makes paths relative to the describing file."""

    described_in: Path
    parameters: Mapping[str, str]
    set_here: frozenset[str]

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
        first = _PARAMETER.match(text)
        is_here = first is not None and first.group(1) in self.set_here
        base = Path() if is_here else self.described_in.parent
        return Path(os.path.normpath(base / self.text(text)))

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

"""`read_pipeline`: the description of a pipeline in a TOML file; docs/pipeline.md has all keys.

Paths are relative to the file that names them; paths that begin with a parameter set from outside
are relative to the working directory.
"""

import glob
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from contrada.errors import ContradaError, ExtensionError, InputError, InvalidObventError
from contrada.integrations.documents.name_patterns import PATTERN
from contrada.integrations.files import FORMATS, ReadOptions, check_name_of
from contrada.integrations.files.read_options import plain_format
from contrada.integrations.files.subscription_files import DIALECTS
from contrada.integrations.spark.pipeline.hadoop_paths import Folder, HadoopPath, is_address
from contrada.integrations.spark.pipeline.pipeline_subscriptions import (
    LoadedSubscriptions,
    NamedFilters,
    SubscriptionsOrigin,
    load_origins,
    read_patterns,
)
from contrada.integrations.spark.spark_session import parse_conf
from contrada.model import Pattern, mark_name
from contrada.model.domains.values import UNITS_US
from contrada.model.extensions.extended_type import object_named
from contrada.service.settings import checked, read_bytes, read_text, read_toml

_PARAMETER: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_DURATION: Final = re.compile(r"(\d{1,9}) ?([a-z]+)")
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_MARK_PREFIX: Final = mark_name("")

AVAILABLE_NOW: Final = "available-now"
"""The trigger of a stream that ends when all data present at its start is read."""

_OWN_NAMES: Final = ("matches", "quarantine", "patterns", "published.json", "report.", "versions")
_OWN_FILES: Final = ("part-", "_", ".", "date=", "type=", "batch=")


@dataclass(frozen=True, slots=True)
class Source:
    """A source of records, and their decoding.

    `paths` are as Spark takes them. Text formats are read as by `contrada match`; all others by
    Spark, with its `options`, from `paths` or a `table`, and converted as `of` and `column` say
    (see `to_notifications`).
    """

    name: str
    format: str
    files: tuple[Path, ...]
    reading: ReadOptions
    paths: tuple[str, ...] = ()
    table: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    of: str = "wide"
    column: str | None = None


@dataclass(frozen=True, slots=True)
class TableSink:
    """A table, by name or path, for rows of the results."""

    rows: str
    format: str
    table: str | None
    path: str | None
    options: Mapping[str, str]

    def __str__(self) -> str:
        return self.table or str(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLimits:
    """Limits of a `Pipeline`."""

    published_at_once: int = 100_000
    """Notifications that one job publishes. Beyond it: the next job publishes the rest."""
    broker_away_s: float = 10.0
    """Seconds to wait for a lost broker. Beyond it: the run ends; `--resume` goes on."""
    batch_end_wait_s: float = 30.0
    """Seconds that a stopping stream waits for its micro-batch. Beyond it: it is cancelled, and
    repeated after the stop."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The sources, subscriptions and outputs of a pipeline.

    `asked` are the subscriptions of files at the time of reading, None if a broker must be asked
    first. A stream has a trigger every `trigger_us`, or ends when all present data is read. `text`
    is the whole description, to compare descriptions. `spark` are settings of the session.
    """

    sources: tuple[Source, ...]
    origins: tuple[SubscriptionsOrigin, ...]
    asked: LoadedSubscriptions | None
    output: Folder
    publish: str | None = None
    delivery: str = "certified"
    patterns: Mapping[str, Pattern] = field(default_factory=dict)
    tables: tuple[TableSink, ...] = ()
    partition: tuple[str, ...] = ("date", "type")
    is_stream: bool = False
    trigger_us: int | None = None
    checkpoint: Folder = Path()
    slack_us: int = 0
    text: str = ""
    spark: Mapping[str, str] = field(default_factory=dict)
    limits: PipelineLimits = PipelineLimits()

    def partitions(self, rows: str) -> tuple[str, ...]:
        """Returns the columns that partition results; matches of patterns have no type."""
        if rows == "quarantine":
            return ()
        return tuple(each for each in self.partition if each == "date" or rows == "matches")

    def absolute(self) -> "Pipeline":
        """Returns it with absolute paths, for a process with another working directory."""
        origins = tuple(
            replace(each, file=each.file.absolute() if each.file else None) for each in self.origins
        )
        output, checkpoint = self.output.absolute(), self.checkpoint.absolute()
        return replace(self, origins=origins, output=output, checkpoint=checkpoint)

    @property
    def subscriptions(self) -> NamedFilters:
        """The subscriptions of files, by name."""
        return self.asked.filters if self.asked else {}

    @property
    def matches(self) -> Folder:
        """The Parquet directory of the matches."""
        return self.output / "matches"


class _SourceFields(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    name: str
    format: str
    paths: list[str] = []
    table: str | None = None
    options: dict[str, str | int | float | bool] = {}
    of: Literal["wide", "json", "xml", "variant", "map"] = "wide"
    column: str | None = None
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
    pattern: str | None = None
    delimiter: str = ","
    quote: str = '"'
    strategy: str = "multi"
    stylesheet: str | None = None
    schema: str | None = None


_READ_OPTIONS: Final = (
    *("types", "entries", "add", "time", "rename"),
    *("zone", "pattern", "delimiter", "quote", "strategy"),
)
"""The keys of a source that are read options as they are."""


class _SubscribedFields(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    file: str | None = None
    dialect: str | None = None
    broker: str | None = None


class _SequenceFields(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    name: str | None = None
    pattern: str | None = None
    file: str | None = None


class _TableFields(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    rows: Literal["matches", "quarantine", "patterns"] = "matches"
    format: str = "parquet"
    table: str | None = None
    path: str | None = None
    options: dict[str, str | int | float | bool] = {}


class _PipelineFields(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    subscriptions: str | list[_SubscribedFields]
    output: str
    source: list[_SourceFields]
    mode: Literal["batch", "stream"] = "batch"
    publish: str | None = None
    delivery: Literal["best-effort", "reliable", "certified"] | None = None
    pattern: list[_SequenceFields] = []
    table: list[_TableFields] = []
    partition: list[Literal["date", "type"]] | None = None
    trigger: str | None = None
    checkpoint: str | None = None
    slack: str | None = None
    parameters: dict[str, str] = {}
    spark: dict[str, str | int | float | bool] = {}


def read_pipeline(path: Path, settings: Mapping[str, str] | None = None) -> Pipeline:
    """Reads the description in a file; `settings` replace its parameters. Raises InputError for a
    malformed key, paths without a file, an output that is not writable, and bad subscriptions.
    """
    described = checked(str(path), read_toml(path), _PipelineFields)
    settings = settings or {}
    known = {*described.parameters, *_PARAMETER.findall(read_text(path))}
    for name in settings:
        if name not in known:
            expected = ", ".join(sorted(known)) or "none, for it has no parameters"
            raise InputError("--set", f"found the parameter {name!r}, expected one of: {expected}")
    filled = _ParameterFiller(path, {**described.parameters, **settings}, frozenset(settings))
    names = [source.name for source in described.source]
    if not names or len(set(names)) < len(names):
        raise InputError(str(path), f"found the sources {names}, expected one or more, named apart")
    output = filled.folder(described.output)
    if isinstance(output, Path):  # Addresses need Spark.
        _check_writable(output)
        check_owned(output)
    is_stream = described.mode == "stream"
    origins = tuple(_origins(described, filled))
    is_offline = all(origin.file is not None for origin in origins)
    _check_keys(path, described)
    trigger = described.trigger or AVAILABLE_NOW
    return Pipeline(
        tuple(_source(source, filled, is_stream=is_stream) for source in described.source),
        origins,
        load_origins(origins) if is_offline else None,
        output,
        filled.text(described.publish) if described.publish else None,
        described.delivery or "certified",
        _patterns(described, filled),
        tuple(_table(table, filled) for table in described.table),
        ("date", "type") if described.partition is None else tuple(described.partition),
        is_stream,
        None if trigger == AVAILABLE_NOW else _duration_us(path, "trigger", trigger),
        filled.folder(described.checkpoint) if described.checkpoint else output / ".checkpoint",
        _duration_us(path, "slack", described.slack or "0 s"),
        repr((read_text(path), sorted(settings.items()))),
        parse_conf(_options(described.spark, filled).items(), f"{path}: spark"),
    )


def _check_keys(path: Path, described: _PipelineFields) -> None:
    of_stream = ("trigger", "checkpoint", "slack")
    found = [key for key in of_stream if getattr(described, key) is not None]
    if found and described.mode != "stream":
        reason = f'found {", ".join(found)}, which a stream has: expected mode = "stream"'
        raise InputError(str(path), reason)
    if not described.pattern and any(each.rows == "patterns" for each in described.table):
        raise InputError(str(path), "found a table for patterns, expected a pattern, too")


def _origins(
    described: _PipelineFields, filled: "_ParameterFiller"
) -> Iterator[SubscriptionsOrigin]:
    """Yields the origins; files have name patterns if a source names by `pattern`."""
    has_patterns = any(source.strategy == PATTERN for source in described.source)
    given = described.subscriptions
    for number, each in enumerate([_SubscribedFields(given)] if isinstance(given, str) else given):
        place = f"{filled.described_in}: subscriptions[{number}]"
        if (each.file is None) == (each.broker is None):
            raise InputError(place, "expected a file or a broker")
        if each.dialect is not None and (each.broker or each.dialect not in DIALECTS):
            known = ", ".join(DIALECTS)
            raise InputError(place, f"found {each.dialect!r}, expected one of: {known}, of a file")
        if each.broker is not None:
            yield SubscriptionsOrigin(broker=filled.text(each.broker))
        elif each.file is not None:
            file = filled.path(each.file)
            yield SubscriptionsOrigin(file, each.dialect, has_patterns=has_patterns)
    if not given:
        raise InputError(str(filled.described_in), "found no subscriptions, expected one or more")


def _patterns(described: _PipelineFields, filled: "_ParameterFiller") -> dict[str, Pattern]:
    found: dict[str, Pattern] = {}
    for number, each in enumerate(described.pattern):
        place = f"{filled.described_in}: pattern[{number}]"
        if (each.file is None) == (each.pattern is None) or bool(each.name) == bool(each.file):
            raise InputError(place, "expected name and pattern, or a file")
        if each.file is not None:
            new = read_patterns(filled.path(each.file))
        else:
            try:
                new = {str(each.name): Pattern(str(each.pattern))}
            except ContradaError as error:
                raise InputError(place, str(error)) from None
        for name in new.keys() & found.keys():
            raise InputError(place, f"found the name {name!r} again, expected a new one")
        found |= new
    return found


def _table(table: _TableFields, filled: "_ParameterFiller") -> TableSink:
    if (table.table is None) == (table.path is None):
        raise InputError(f"{filled.described_in}: table", "expected a table or a path")
    name = table.table and filled.text(table.table)
    where = table.path and filled.place(table.path)
    return TableSink(table.rows, table.format, name, where, _options(table.options, filled))


def _options(options: Mapping[str, Any], filled: "_ParameterFiller") -> dict[str, str]:
    """Converts options to texts, as Spark needs them."""
    return {
        name: filled.text(value) if isinstance(value, str) else str(value).lower()  # true and false
        for name, value in options.items()
    }


def _duration_us(path: Path, key: str, text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None or found[2] not in UNITS_US:
        also = f'"{AVAILABLE_NOW}" or ' if key == "trigger" else ""
        units = ", ".join(UNITS_US)
        reason = f'{key}: found {text!r}, expected {also}a time as "5 s", in one of: {units}'
        raise InputError(str(path), reason)
    return int(found[1]) * UNITS_US[found[2]]


def _check_writable(output: Path) -> None:
    """Checks the output before a long run, without creating it."""
    there = next(path for path in (output, *output.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise InputError(str(output), f"cannot be written: {there} is no directory to write into")


def check_owned(output: Folder) -> None:
    """Refuses a folder with foreign files, since a run replaces its contents. Raises InputError."""
    if not output.exists():
        return
    folders = (output / "matches", output / "quarantine", output / "patterns")
    inside = [each for folder in folders if folder.is_dir() for each in folder.iterdir()]
    others = [each.name for each in inside if not each.name.startswith(_OWN_FILES)]
    own = (*_OWN_NAMES, ".")
    others += [each.name for each in output.iterdir() if not each.name.startswith(own)]
    if others:
        names = ", ".join(sorted(others)[:3])
        reason = f"found {names}, expected a folder of its own: a run replaces its content"
        raise InputError(str(output), reason)


@dataclass(frozen=True, slots=True)
class _ParameterFiller:
    """Fills in parameters, and makes paths relative to the describing file."""

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
        if "://" in self.text(text):
            reason = f"found the address {self.text(text)!r}, expected a path of this machine"
            raise InputError(str(self.described_in), reason)
        first = _PARAMETER.match(text)
        is_here = first is not None and first.group(1) in self.set_here
        base = Path() if is_here else self.described_in.parent
        return Path(os.path.normpath(base / self.text(text)))

    def folder(self, text: str) -> Folder:
        """Returns a path, or an address for Spark."""
        filled = self.text(text)
        return HadoopPath(filled) if is_address(filled) else self.path(text)

    def place(self, text: str) -> str:
        """Returns an absolute path, or an address for Spark."""
        if _ADDRESS.match(self.text(text)):
            return self.text(text)
        return str(self.path(text).absolute())

    def files(self, patterns: list[str]) -> tuple[Path, ...]:
        files: dict[Path, None] = {}
        for pattern in patterns:
            if _ADDRESS.match(self.text(pattern)):
                continue  # Spark lists it.
            found = list(map(Path, sorted(glob.glob(str(self.path(pattern))))))
            if not found:
                reason = f"found no file for {str(self.path(pattern))!r}"
                raise InputError(str(self.described_in), reason)
            for file in filter(Path.is_file, found):
                check_name_of(file)
                files[file] = None
        return tuple(files)


def _source(source: _SourceFields, filled: _ParameterFiller, *, is_stream: bool) -> Source:
    place = f"{filled.described_in}: source {source.name!r}"
    is_text = source.format in FORMATS
    if source.entries is not None and source.format not in ("xml", "json"):
        raise InputError(place, "entries are elements of XML, or of an array in JSON")
    if source.type_marks and source.obvent:
        raise InputError(place, "found type_marks and obvent, expected one of them")
    if source.paths and source.table is not None:
        raise InputError(place, "found paths and a table, expected one of them")
    if is_text and not source.paths:
        raise InputError(place, "found no paths, expected one or more")
    if is_text and (source.table is not None or source.column is not None):
        raise InputError(place, "table and column are for the formats of Spark")
    if source.of != "wide" and source.column is None:
        raise InputError(place, f"the column is missing that holds the {source.of}")
    marks = _obvent_marks(source.obvent) if source.obvent else tuple(source.type_marks)
    files = [filled.path(name) if name else None for name in (source.stylesheet, source.schema)]
    stylesheet, schema = (read_bytes(file) if file else None for file in files)
    try:
        reading = ReadOptions(
            **{name: getattr(source, name) for name in _READ_OPTIONS},
            absent=frozenset(source.absent),
            drop=frozenset(source.drop),
            marks=marks,
            stylesheet=stylesheet,
            schema=schema,
        )
        if is_text:
            plain_format(source.format, reading)
    except ContradaError as error:
        raise InputError(place, str(error)) from None
    return Source(
        source.name,
        source.format,
        filled.files(source.paths) if is_text and not is_stream else (),
        reading,
        tuple(map(filled.place, source.paths)),
        filled.text(source.table) if source.table else None,
        _options(source.options, filled),
        source.of,
        source.column,
    )


def _obvent_marks(reference: str) -> tuple[str, ...]:
    """Returns the type names of an event class, from its filter."""
    try:
        obvent: Any = object_named(reference)
        names = obvent.to_filters().sets
    except ExtensionError as error:
        raise InvalidObventError(reference, error.reason) from error
    except Exception as error:
        reason = f"its filters cannot be had: {type(error).__name__}: {error}"
        raise InvalidObventError(reference, reason) from error
    marks = [name for name in sorted(names) if name.startswith(_MARK_PREFIX)]
    if not marks:
        raise InvalidObventError(reference, "its objects have no mark of their own")
    return tuple(name.removeprefix(_MARK_PREFIX) for name in marks)

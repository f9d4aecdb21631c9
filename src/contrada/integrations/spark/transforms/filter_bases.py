"""`Base`: many subscriptions, indexed once, saved by their digest, and memory-mapped by every
worker.

A base consists of files in a folder, named by a digest of their content: equal subscriptions are
indexed once, also across processes. `NAME.base` is written last and describes the other files. Keys
are in an Arrow file, and the index has their positions, which are small integers. The residues of
rules of other dialects are pickled; so open only bases of trusted persons.

Workers look for the files in that folder, which may be shared, and else among the files that Spark
has shipped. They cache the bases used last.
"""

import os
import pickle
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, TypeAlias
from weakref import WeakSet

import msgspec
import pyarrow as pa
from pyspark import SparkFiles, cloudpickle
from pyspark.sql import DataFrame, SparkSession

from contrada.errors import ContradaError, InputError
from contrada.file_replacement import replace_file
from contrada.integrations.files.subscription_files import load_subscriptions
from contrada.integrations.spark.transforms.worker_code import check_compiled
from contrada.matching.index import Index, Residues
from contrada.matching.index_file import MAGIC
from contrada.model import Filter, FilterSet, from_msgpack, to_msgpack
from contrada.model.algebra.filter import selection
from contrada.model.extensions import load, loaded
from contrada.model.native import NATIVE
from contrada.model.rule import Rule

BASES_KEPT_MAX: Final = 4
"""Mapped bases of a worker. Beyond it: the least recently used one is closed."""

KEYS_KEPT_MAX: Final = 8_000_000
"""Subscriptions of all mapped bases of a worker, some 2 GB of its memory. Beyond it: the least
recently used bases are closed, except the one in use."""

_LAYOUT: Final = b"keys, index"
"""The files of a base, for its digest: a base with other files is not reused."""

SubscribedInterest: TypeAlias = Filter | FilterSet | Rule | str | Mapping[str, Any]
"""The subscription of a key: filters, their text, or a rule of another dialect."""

SubscriptionKey: TypeAlias = str | int
"""The name of a subscription: a text, or an integer of 64 bits."""


class SavedBase(msgspec.Struct, frozen=True):
    """The content of a base's file; workers receive nothing else of the base. `names` are the
    attributes of its filters, `extensions` those with which the filters were parsed.
    """

    digest: str
    folder: str
    keys: int
    are_integers: bool
    names: tuple[str, ...]
    has_residues: bool
    is_compiled: bool
    extensions: tuple[str, ...] = ()

    def files(self) -> Iterator[str]:
        """Yields the names of the files that workers need."""
        yield f"{self.digest}.keys"
        yield f"{self.digest}.index"
        if self.has_residues:
            yield f"{self.digest}.residues"


class Base:
    """A base of subscriptions: keys and their filters, ready to be matched anywhere.

    `subscriptions` are a mapping of keys to filters, texts or rules, the path of a file as for
    `contrada match`, or a frame of two columns, the keys and texts or packed filters. Keys are
    texts, or all of them integers. The base is saved below `folder`, where an equal one is reused.
    With `shared=True` all workers see the folder; otherwise its files are shipped at its first use
    in a session. Cost: some tens of microseconds for each filter, on the driver; much less for a
    reused base. Raises InputError for invalid subscriptions.
    """

    def __init__(
        self,
        subscriptions: Mapping[Any, SubscribedInterest] | str | Path | DataFrame,
        *,
        folder: str | Path | None = None,
        shared: bool = False,
    ) -> None:
        self._shared = shared
        self._shipped: WeakSet[SparkSession] = WeakSet()
        where = _folder(folder)
        keys, asked = _read(subscriptions)
        self.interests: Mapping[SubscriptionKey, Filter | FilterSet] | None = None
        digest = _digest(keys, asked)
        try:
            self.saved = _read_saved(where, digest)
        except FileNotFoundError:
            self.saved = _build(where, digest, keys, asked)
        if len(keys) <= BASE_FILTERS_KEPT_MAX:
            self.interests = {key: _filters(each) for key, each in zip(keys, asked, strict=True)}

    @classmethod
    def of(
        cls, subscriptions: "Base | Mapping[Any, SubscribedInterest] | str | Path | DataFrame"
    ) -> "Base":
        """Returns the base itself, or a base of the given subscriptions."""
        return subscriptions if isinstance(subscriptions, Base) else cls(subscriptions)

    @classmethod
    def load(cls, digest: str, *, folder: str | Path | None = None, shared: bool = False) -> "Base":
        """Returns the saved base of a digest. Raises InputError without one."""
        base = cls.__new__(cls)
        base._shared, base._shipped, base.interests = shared, WeakSet(), None
        try:
            base.saved = _read_saved(_folder(folder), digest)
        except FileNotFoundError:
            raise InputError(str(_folder(folder)), f"has no base of the digest {digest}") from None
        return base

    @property
    def digest(self) -> str:
        """Its name: equal for the same keys and filters in the same order."""
        return self.saved.digest

    def __len__(self) -> int:
        return self.saved.keys

    def __repr__(self) -> str:
        return f"<Base of {len(self)} subscriptions, {self.digest}>"

    def keys(self) -> list[Any]:
        """Returns the keys in order. Cost: reads all of them."""
        found: list[Any] = _mapped_keys(self._path(f"{self.digest}.keys")).to_pylist()
        return found

    def _path(self, name: str) -> Path:
        return Path(self.saved.folder) / name

    def ship(self, session: SparkSession) -> SavedBase:
        """Ships the files to the workers of a session; returns the description for them. Cost: a
        copy of the files for each session and worker, unless they see the folder.
        """
        if not self._shared and session not in self._shipped and not is_local(session):
            session.addArtifacts(*(str(self._path(name)) for name in self.saved.files()), file=True)
            self._shipped.add(session)
        return self.saved


BASE_FILTERS_KEPT_MAX: Final = 1_000
"""Subscriptions of a base with filters on the driver. Beyond it: they are only in the files,
and the base is never matched by predicates."""


def is_local(session: SparkSession) -> bool:
    """Whether workers see the folders of this process."""
    context = getattr(session, "_sc", None)  # a session of Spark Connect has none
    return context is not None and re.fullmatch(r"local(\[.*\])?", str(context.master)) is not None


def _folder(folder: str | Path | None) -> Path:
    if folder is not None:
        return Path(folder).absolute()
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches).absolute() / "contrada" / "bases"


# --- building -------------------------------------------------------------------------------------


def _read(given: Any) -> tuple[list[SubscriptionKey], list[SubscribedInterest]]:
    if isinstance(given, str | Path):
        given = load_subscriptions(Path(given))
    elif isinstance(given, DataFrame):
        given = _rows_of(given)
    elif not isinstance(given, Mapping):
        reason = f"found {given!r}, expected a mapping, a file or a frame"
        raise InputError("subscriptions", reason)
    keys = list(given)
    kinds = set(map(type, keys))
    if not keys or kinds not in ({str}, {int}):
        shown = ", ".join(sorted(kind.__name__ for kind in kinds)) or "none"
        raise InputError("subscriptions", f"found keys of {shown}, expected texts, or integers")
    return keys, [_parse(key, each) for key, each in given.items()]


def _rows_of(frame: DataFrame) -> dict[SubscriptionKey, Any]:
    if len(frame.columns) != 2:
        raise InputError("subscriptions", f"found the columns {frame.columns}, expected two")
    table = frame.toArrow()
    keys, found = (column.to_pylist() for column in table.columns)
    if len(set(keys)) < len(keys) or None in keys:
        raise InputError("subscriptions", "found a key that is NULL, or there twice")
    return dict(zip(keys, found, strict=True))


def _parse(key: SubscriptionKey, given: Any) -> Filter | FilterSet | Rule:
    try:
        if isinstance(given, bytes):
            given = from_msgpack(given)
        return given if isinstance(given, Rule) else selection(given)
    except ContradaError as error:
        raise InputError(f"the subscription {key!r}", str(error)) from None


def _filters(asked: Any) -> Filter | FilterSet:
    return asked.filters if isinstance(asked, Rule) else asked


def _digest(keys: list[SubscriptionKey], asked: list[Any]) -> str:
    """Returns the digest of a base's content and the version of its files."""
    found = blake2b(MAGIC, digest_size=16, person=_LAYOUT)
    found.update(repr((loaded(), NATIVE is None)).encode())
    for key, each in zip(keys, asked, strict=True):
        residue = cloudpickle.dumps(each.residue_holds) if isinstance(each, Rule) else b""
        found.update(msgspec.msgpack.encode((key, to_msgpack(_filters(each)), residue)))
    return found.hexdigest()


def _build(folder: Path, digest: str, keys: list[SubscriptionKey], asked: list[Any]) -> SavedBase:
    folder.mkdir(parents=True, exist_ok=True)
    residues = {
        place: each.residue_holds
        for place, each in enumerate(asked)
        if isinstance(each, Rule) and each.residue_holds is not None
    }
    if residues:
        replace_file(folder / f"{digest}.residues", [cloudpickle.dumps(residues)])
    _write_keys(folder / f"{digest}.keys", keys)
    names: set[str] = set()
    index: Index[int] = Index()
    for place, filters in enumerate(map(_filters, asked)):
        names.update(*(member.sides for member in filters.filters))
        index.add(place, filters)
    index.save(folder / f"{digest}.index")
    saved = SavedBase(
        digest,
        str(folder),
        len(keys),
        type(keys[0]) is int,
        tuple(sorted(names)),
        bool(residues),
        NATIVE is not None,
        loaded(),
    )
    replace_file(folder / f"{digest}.base", [msgspec.json.encode(saved)])
    return saved


def _write_keys(path: Path, keys: list[SubscriptionKey]) -> None:
    column = pa.array(keys, pa.int64() if type(keys[0]) is int else pa.string())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema([("key", column.type)])) as writer:
        writer.write_batch(pa.record_batch([column], ["key"]))
    replace_file(path, [sink.getvalue()])


def _read_saved(folder: Path, digest: str) -> SavedBase:
    """Returns the description of a saved base. Raises FileNotFoundError, InputError."""
    path = folder / f"{digest}.base"
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=SavedBase)
    except msgspec.DecodeError as error:
        raise InputError(str(path), f"is no base: {error}") from None
    return msgspec.structs.replace(saved, folder=str(folder))


# --- in workers -----------------------------------------------------------------------------------


def _mapped_keys(path: Path) -> Any:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all().column(0).chunk(0)


class OpenBase:
    """A base in a worker: its mapped keys and index, and the residues of its rules."""

    def __init__(self, saved: SavedBase) -> None:
        for name in saved.extensions:
            load(name)
        check_compiled(saved.is_compiled)
        self.saved = saved
        self.keys = _mapped_keys(self._path("keys"))
        self.index: Index[int] = Index.load(self._path("index"))
        self.residues: Residues[int] = Residues()
        if saved.has_residues:
            self.residues.of = pickle.loads(self._path("residues").read_bytes())

    def _path(self, name: str) -> Path:
        """Returns the path of a file of the base: in its folder, or among shipped files."""
        file = f"{self.saved.digest}.{name}"
        path = Path(self.saved.folder) / file
        return path if path.exists() else Path(SparkFiles.get(file))


_bases: Final[dict[str, OpenBase]] = {}
"""The open bases of this process, the most recently used last."""


def open_base(saved: SavedBase) -> OpenBase:
    """Returns the base, opened once and cached in this worker."""
    found = _bases.pop(saved.digest, None)
    while _bases and (
        len(_bases) >= BASES_KEPT_MAX
        or saved.keys + sum(each.saved.keys for each in _bases.values()) > KEYS_KEPT_MAX
    ):
        del _bases[next(iter(_bases))]
    # Opened now: others are closed before, so that their memory is free.
    _bases[saved.digest] = opened = found or OpenBase(saved)
    return opened

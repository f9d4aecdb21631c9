"""`HadoopPath`: folders at addresses such as `hdfs://…`, through Hadoop's file systems in the
driver.

It has the methods of `pathlib.Path` that a pipeline uses, with the same errors. There are no links
and no locks: `run_folder` replaces them.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from contrada.errors import EngineError, InputError
from contrada.integrations.spark.spark_session import cause_of

_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+:)(//[^/]*)?(/.*)?", re.DOTALL)
_ABORTABLE: Final = "fs.capability.outputstream.abortable"
"""The capability of stores that show a file only when it is closed."""

_GONE: Final = ("java.io.FileNotFoundException", "java.nio.file.NoSuchFileException")
_THERE: Final = "org.apache.hadoop.fs.FileAlreadyExistsException"


class HadoopPath:
    """A path at an address, with its scheme. Creating one does not access the file system.
    Operations raise InputError behind Spark Connect, for an unknown file system, and for its
    errors; FileNotFoundError and FileExistsError as a `Path` does.
    """

    __slots__ = ("_path", "_root")

    def __init__(self, address: str) -> None:
        parts = _ADDRESS.fullmatch(address)
        if parts is None:
            raise InputError(address, "found no scheme, expected an address as hdfs://host/folder")
        scheme, authority, path = parts.groups(default="")
        self._root = scheme + authority
        self._path = PurePosixPath(path or "/")

    def __str__(self) -> str:
        return f"{self._root}{self._path}"

    def __repr__(self) -> str:
        return f"HadoopPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HadoopPath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __truediv__(self, name: str) -> "HadoopPath":
        return HadoopPath(f"{self._root}{self._path / name}")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self._path.name

    @property
    def stem(self) -> str:
        """The last part, without its suffix."""
        return self._path.stem

    @property
    def parent(self) -> "HadoopPath":
        """The folder above."""
        return HadoopPath(f"{self._root}{self._path.parent}")

    def absolute(self) -> "HadoopPath":
        """Returns the path itself."""
        return self

    def exists(self) -> bool:
        """Whether a file or folder exists."""
        with self._files() as files:
            return bool(files.exists(self._java()))

    def is_dir(self) -> bool:
        """Whether it is an existing folder."""
        return any(each.isDirectory() for each in self._status())

    def iterdir(self) -> Iterator["HadoopPath"]:
        """Returns the entries of the folder. Raises FileNotFoundError."""
        with self._files() as files:
            names = [each.getPath().getName() for each in files.listStatus(self._java())]
        return (self / name for name in names)

    def glob(self, pattern: str) -> Iterator["HadoopPath"]:
        """Returns the entries of the folder that match a pattern; none without a folder."""
        held = self.iterdir() if self.is_dir() else iter(())
        return (each for each in held if fnmatchcase(each.name, pattern))

    def mkdir(self, parents: bool = True, exist_ok: bool = True) -> None:
        """Makes the folder, and its parents."""
        del parents, exist_ok  # `mkdirs` always does both.
        with self._files() as files:
            files.mkdirs(self._java())

    def unlink(self, missing_ok: bool = False) -> None:
        """Deletes a file, or a folder with its contents."""
        with self._files() as files:
            if not files.delete(self._java(), True) and not missing_ok:
                raise FileNotFoundError(str(self))

    def replace(self, target: "HadoopPath") -> None:
        """Moves it, replacing a file or an empty folder. Atomic where the file system supports it;
        object stores copy, and then delete.
        """
        context, address = _context(str(target)), str(target)
        with self._files():
            conf, uri = context._jsc.hadoopConfiguration(), target._java().toUri()
            files = _java_class("FileContext", address).getFileContext(uri, conf)
            rename = _java_class("Options$Rename", address)
            options = context._gateway.new_array(rename, 1)
            options[0] = rename.OVERWRITE
            files.rename(self._java(), target._java(), options)

    def read_bytes(self) -> bytes:
        """Returns the content of a file. Raises FileNotFoundError."""
        with self._files() as files:
            stream = files.open(self._java())
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def write_atomically(self, content: bytes) -> None:
        """Replaces a file atomically."""
        with self._files() as files:
            if files.hasPathCapability(self._java(), _ABORTABLE):
                self.write_bytes(content)
                return
        new = self.parent / f".{self.name}.new"
        new.write_bytes(content)
        new.replace(self)

    def write_bytes(self, content: bytes, *, is_new: bool = False) -> None:
        """Writes a file. With `is_new` raises FileExistsError for an existing one."""
        with self._files() as files:
            stream = files.create(self._java(), not is_new)
            try:
                stream.write(content)
                if stream.hasCapability("hsync"):
                    stream.hsync()
            finally:
                stream.close()

    def modified_ms(self) -> int | None:
        """The time of its last change, by the file system's clock; None if it does not exist."""
        return next((int(each.getModificationTime()) for each in self._status()), None)

    def resolved(self) -> str:
        """Returns the address behind a table of mounts."""
        self.mkdir()
        with self._files() as files:
            return str(files.resolvePath(self._java()).toString())

    def send(self, file: Path) -> None:
        """Copies a local file there, atomically."""
        new = self.parent / f".{self.name}.new"
        with self._files() as files:
            files.copyFromLocalFile(False, True, _java_path(file.absolute().as_uri()), new._java())
        new.replace(self)

    def fetch(self, file: Path) -> None:
        """Copies it to a local file, atomically."""
        new = file.with_name(f".{file.name}.new")
        with self._files() as files:
            files.copyToLocalFile(False, self._java(), _java_path(new.absolute().as_uri()), True)
        new.replace(file)

    def _status(self) -> list[Any]:
        try:
            with self._files() as files:
                return [files.getFileStatus(self._java())]
        except FileNotFoundError:
            return []

    def _java(self) -> Any:
        return _java_path(str(self))

    @contextmanager
    def _files(self) -> Iterator[Any]:
        """Yields the file system; its errors become those of a `Path`."""
        try:
            yield self._java().getFileSystem(_context(str(self))._jsc.hadoopConfiguration())
        except Py4JJavaError as error:
            kind = error.java_exception.getClass().getName()
            if kind in _GONE:
                raise FileNotFoundError(str(self)) from None
            if kind == _THERE:
                raise FileExistsError(str(self)) from None
            raise InputError(str(self), cause_of(str(error))) from None
        except PySparkException as error:
            raise InputError(str(self), str(error).splitlines()[0]) from None
        except (Py4JError, ConnectionError) as error:
            raise EngineError("its Java process has ended") from error


Folder: TypeAlias = Path | HadoopPath
"""A folder or file, on this machine or at an address."""


def is_address(text: str) -> bool:
    """Whether a text is an address, not a local path."""
    return "://" in text or re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", text) is not None


def path_for_workers(folder: Folder) -> str:
    """Returns the path for workers, which know no tables of mounts."""
    return folder.resolved() if isinstance(folder, HadoopPath) else str(folder.absolute())


def move_into(source: HadoopPath, target: HadoopPath) -> None:
    """Moves a folder or file to a target that is absent, or a part of an interrupted move."""
    if source.is_dir() and target.is_dir():
        for each in source.iterdir():
            move_into(each, target / each.name)
        source.unlink()
    else:
        source.replace(target)


def _context(address: str) -> Any:
    context = SparkContext._active_spark_context
    if context is None:
        reason = "an address is for a Spark that has its driver here: expected none behind Connect"
        raise InputError(address, reason)
    return context


def _java_class(name: str, address: str) -> Any:
    """Returns a Hadoop class; each part of a dotted access would be a call to Java."""
    client = _context(address)._gateway._gateway_client
    return JavaClass(f"org.apache.hadoop.fs.{name}", client)


def _java_path(address: str) -> Any:
    return _java_class("Path", address)(address)

"""Places of stores: a file of SQLite, a schema of PostgreSQL; with what may befall them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import pytest

from contrada.service.stores.store_location import open_store
from contrada.service.stores.table_store import TableStore
from tests.postgres import needs_postgres, shared_server


class Place(Protocol):
    """Where one store is."""

    name: str
    """What `connect` takes."""

    def execute(self, statement: str, *values: Any) -> None:
        """Changes the tables behind the store's back; `?` stands for each value."""
        ...

    def fill(self, store: TableStore) -> None:
        """Leaves no room for a group of many records."""
        ...

    def make_room(self, store: TableStore) -> None:
        """Ends that."""
        ...


class FilePlace:
    """A file of SQLite."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)

    def execute(self, statement: str, *values: Any) -> None:
        """See `AccessPredicate.execute`."""
        with closing(sqlite3.connect(self.name)) as db, db:
            db.execute(statement, values)

    def fill(self, store: TableStore) -> None:
        """See `AccessPredicate.fill`."""
        store._db.execute("PRAGMA max_page_count = 20")  # type: ignore[attr-defined]

    def make_room(self, store: TableStore) -> None:
        """See `AccessPredicate.make_room`."""
        store._db.execute("PRAGMA max_page_count = 1000000")  # type: ignore[attr-defined]


class SchemaPlace:
    """A schema of PostgreSQL."""

    def __init__(self, url: str) -> None:
        self.name = url
        self._server, _, self._schema = url.partition("?schema=")

    def execute(self, statement: str, *values: Any) -> None:
        """See `AccessPredicate.execute`."""
        import psycopg  # Needs the system's libpq, which a server brings along.

        with psycopg.connect(self._server) as db:
            db.execute(f"SET search_path = {self._schema}".encode())
            db.execute(statement.replace("?", "%s").encode(), values or None)

    def fill(self, store: TableStore) -> None:
        """See `AccessPredicate.fill`. Says what the server would say, at the same place."""
        self.execute(
            "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$;"
            "CREATE TRIGGER no_room BEFORE INSERT ON records FOR EACH ROW"
            " WHEN (length(NEW.data) > 500) EXECUTE FUNCTION no_room()"
        )

    def make_room(self, store: TableStore) -> None:
        """See `AccessPredicate.make_room`."""
        self.execute("DROP FUNCTION no_room CASCADE")


KINDS = ["sqlite", pytest.param("postgresql", marks=needs_postgres)]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place where no store is yet, of each kind."""
    if request.param == "sqlite":
        return FilePlace(tmp_path / "store.db")
    return SchemaPlace(shared_server().url())


@pytest.fixture
def store(place: Place) -> Iterator[TableStore]:
    """A store there, which is closed in the end."""
    store = open_store(place.name)
    yield store
    store.close()

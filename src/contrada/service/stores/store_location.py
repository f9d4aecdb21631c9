"""`open_store`: opens the store at the path of a file, or at a URL."""

from collections.abc import Callable, Mapping
from os.path import isdir
from pathlib import Path
from typing import TypeVar

from contrada.delivery.store import Store
from contrada.errors import ServiceError, StoreError
from contrada.model.languages.work_budget import Uncollected
from contrada.service.stores.table_store import TableStore

T = TypeVar("T")


def check_store(store: object) -> None:
    """Raises ServiceError unless it is a store, or a place for one."""
    expected = "expected the path of a file, postgresql://user@host/database, or a Store"
    if not isinstance(store, str | Path | Store | None):
        raise ServiceError(f"store = {store!r}: {expected}")
    if isinstance(store, str) and _scheme(store):
        if _scheme(store) not in ("postgresql", "postgres"):
            # The rest of a URL may hold a password.
            raise ServiceError(f"store = '{_scheme(store)}://…': {expected}")
    elif store == ":memory:":  # It would be a file of this name.
        raise ServiceError(f"store = '{store}': a store outlives its process; {expected}")
    elif isinstance(store, str | Path) and not isdir(folder := Path(store).parent):
        raise ServiceError(f"store = '{store}': there is no folder {folder}")


def open_store(place: str | Path) -> TableStore:
    """Opens the store at a place, or creates it there.

    Raises StoreError, ServiceError for a URL of another scheme, MissingRequirementError.
    """
    check_store(place)
    if isinstance(place, str) and _scheme(place):
        from contrada.service.stores.postgres_store import PostgresStore

        return PostgresStore(place)
    from contrada.service.stores.sqlite_store import SqliteStore

    return SqliteStore(place)


def open_sound(place: str | Path, use: Callable[[Store], T]) -> T:
    """Opens the store at a place and returns `use(store)`.

    The store is closed if that fails, or if it is damaged. Raises StoreError, and the errors of
    `open_store` and `use`.
    """
    with Uncollected():
        return use_sound(open_store(place), use)


def use_sound(opened: TableStore, use: Callable[[Store], T]) -> T:
    """As `open_sound`, with a store that is open."""
    try:
        check_sound(opened.place, opened.damaged)
        return use(opened)
    except BaseException:
        opened.close()
        raise


def check_sound(place: str, damaged: Mapping[str, str]) -> None:
    """Raises StoreError with the first damaged parts of a store, if there are any."""
    if damaged:
        found = "; ".join(f"{name!r}: {why}" for name, why in list(damaged.items())[:3])
        more = f"; and {len(damaged) - 3} more" if len(damaged) > 3 else ""
        raise StoreError(f"{place}: damaged: {found}{more}; contrada store check shows all")


def is_url(place: str | Path) -> bool:
    """Whether a place is a database, and no file."""
    return isinstance(place, str) and bool(_scheme(place))


def _scheme(place: str) -> str:
    scheme, is_url, _ = place.partition("://")
    return scheme if is_url else ""

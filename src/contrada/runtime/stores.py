"""Which store a place names: the path of a file, or a URL."""

from pathlib import Path

from contrada.delivery.store import Store
from contrada.errors import ServiceError
from contrada.runtime.tables import TableStore


def check_store(store: object) -> None:
    """Raises ServiceError for what is neither a store nor the place of one."""
    expected = "expected the path of a file, postgresql://user@host/database, or a Store"
    if not isinstance(store, str | Path | Store | None):
        raise ServiceError(f"store = {store!r}: {expected}")
    if isinstance(store, str) and _scheme(store) not in ("", "postgresql", "postgres"):
        # The rest of a URL may hold a password.
        raise ServiceError(f"store = '{_scheme(store)}://…': {expected}")


def open_store(place: str | Path) -> TableStore:
    """Opens the store at a place, or makes it there.

    Raises StoreError, ServiceError for a URL of another scheme, MissingRequirementError.
    """
    check_store(place)
    if isinstance(place, str) and _scheme(place):
        from contrada.runtime.postgres import PostgresStore

        return PostgresStore(place)
    from contrada.runtime.sqlite import SqliteStore

    return SqliteStore(place)


def _scheme(place: str) -> str:
    scheme, is_url, _ = place.partition("://")
    return scheme if is_url else ""

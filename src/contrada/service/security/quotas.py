"""`Quotas`: what one user may use of a broker. A quota that is not set is no bound."""

from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

_Amount: TypeAlias = Annotated[int, Meta(ge=0)]
_Rate: TypeAlias = Annotated[int, Meta(ge=1)]


class Quotas(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The quotas of a user at each broker by itself.

    `subscriptions` counts filters, patterns and readers of durable subscriptions.
    `durable_subscriptions` and `kept_bytes` count the durable subscriptions of the user's own
    names: their number, and the bytes that their retentions let them keep. Rates are per second,
    of the notifications that the user publishes and their encoded bytes.
    """

    connections: _Amount | None = None
    subscriptions: _Amount | None = None
    durable_subscriptions: _Amount | None = None
    kept_bytes: _Amount | None = None
    notifications_per_s: _Rate | None = None
    bytes_per_s: _Rate | None = None

    def limits(self) -> dict[str, int]:
        """Returns the quotas that are set, by name."""
        named = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: most for name, most in named if most is not None}


UNLIMITED: Final = Quotas()

OVER_QUOTA: Final = "over quota"
"""The code of the error for a connection beyond a quota, and the reason of a drop."""

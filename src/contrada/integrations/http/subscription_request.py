"""What a client of the CloudEvents Subscriptions API asks for.

Source: CloudEvents Subscriptions API 1.0-wip §3.2.
"""

from typing import Any, Final

import msgspec

from contrada.errors import InvalidValueError
from contrada.integrations.dialects import cloudevents
from contrada.integrations.http.http_responses import invalid
from contrada.integrations.http.sinks import checked_headers

_HTTP: Final = "HTTP"


class ProtocolSettings(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How a sink is called."""

    headers: dict[str, str] = {}
    method: str = "POST"


class SubscriptionRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a client asks for."""

    sink: str
    protocol: str = _HTTP
    protocolsettings: ProtocolSettings | None = None
    source: str | None = None
    types: list[str] | None = None
    filters: list[dict[str, Any]] | None = None
    config: dict[str, Any] | None = None
    id: str = ""

    def rule(self) -> Any:
        """What it asks for, as a rule. Raises RefusedRuleError, LimitError."""
        asked = {"filters": self.filters or [], "source": self.source, "types": self.types}
        return cloudevents.read({key: each for key, each in asked.items() if each is not None})


def wanted_of(given: Any) -> SubscriptionRequest:
    """What a client asks for, checked. Raises InvalidValueError, RefusedRequestError."""
    try:
        wanted = msgspec.convert(given, SubscriptionRequest)
        msgspec.json.encode(wanted)  # It is kept, and shown.
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise invalid(error) from None
    if wanted.id:
        raise InvalidValueError(wanted.id, "the id of a subscription is made here")
    if wanted.protocol != _HTTP:
        raise InvalidValueError(wanted.protocol, f"expected the protocol {_HTTP!r}")
    if (settings := wanted.protocolsettings) is not None:
        if settings.method != "POST":
            raise InvalidValueError(settings.method, "expected the method 'POST'")
        checked_headers(settings.headers)
    return wanted

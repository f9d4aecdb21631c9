"""The HTTP port of a broker: CloudEvents, event streams, WebSockets, sinks, metrics.

What it needs comes with the extra `http`.
"""

from contrada.errors import MissingRequirementError

try:
    from contrada.integrations.http.gateway import HTTP_PORT_DEFAULT, Gateway, beside
    from contrada.integrations.http.websocket_links import CarriedArrivals
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("contrada"):
        raise
    raise MissingRequirementError(
        f"{error.name}, for the HTTP port", "pip install contrada[http]"
    ) from None

__all__ = ["CarriedArrivals", "Gateway", "HTTP_PORT_DEFAULT", "beside"]

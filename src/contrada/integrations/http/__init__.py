"""The HTTP port of a broker: CloudEvents, event streams, WebSockets, sinks, metrics.

Its dependencies are in the extra `http`.
"""

from functools import partial

from contrada.errors import MissingRequirementError
from contrada.renamed_modules import former_name

try:
    from contrada.integrations.http.gateway import HTTP_PORT_DEFAULT, Gateway
    from contrada.integrations.http.gateway_limits import GatewayLimits
    from contrada.integrations.http.network_api import BrokerRules
    from contrada.integrations.http.sink_rules import SinkRules
    from contrada.integrations.http.token_services import local_services
    from contrada.integrations.http.websocket_links import CarriedArrivals
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("contrada"):
        raise
    raise MissingRequirementError(
        f"{error.name}, for the HTTP port", "pip install 'contrada[http]'"
    ) from None

__all__ = [
    "BrokerRules",
    "CarriedArrivals",
    "Gateway",
    "GatewayLimits",
    "HTTP_PORT_DEFAULT",
    "SinkRules",
    "local_services",
]

__getattr__ = partial(former_name, __name__)

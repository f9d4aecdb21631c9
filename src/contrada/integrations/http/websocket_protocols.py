"""`token_of_protocols`: the token of a WebSocket among its subprotocols.

A browser's WebSocket can set no headers, and an address is kept by logs and proxies. The
subprotocols are the one part of the handshake that a page chooses besides. The client offers
SUBPROTOCOL, which the server selects, and the token behind TOKEN_PROTOCOL in base64url: a token may
hold characters that no subprotocol may.
"""

import binascii
from base64 import b64decode
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from contrada.errors import RefusedRequestError

SUBPROTOCOL: Final = "contrada"
"""The subprotocol of `/ws`. With it a refusal is an `error` message, which a page can read."""

TOKEN_PROTOCOL: Final = "contrada.token."
"""The beginning of the subprotocol that holds the token."""


def token_of_protocols(offered: Sequence[str]) -> str:
    """Returns the token, empty if absent. Raises RefusedRequestError for a malformed one."""
    found = [each for each in offered if each.startswith(TOKEN_PROTOCOL)]
    if not found:
        return ""
    encoded = found[0].removeprefix(TOKEN_PROTOCOL)
    padded = encoded + "=" * (-len(encoded) % 4)
    try:
        return b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        reason = f"the subprotocol {TOKEN_PROTOCOL}…: expected NAME.SECRET in base64url"
        raise RefusedRequestError(HTTPStatus.UNAUTHORIZED, reason) from None

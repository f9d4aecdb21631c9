"""`answer_of` and `token_of`: JSON answers, the status of each error, the token of a request."""

import binascii
from base64 import b64decode
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import Response

from contrada import errors
from contrada.net.wire.address import is_loopback
from contrada.net.wire.tokens import TOKEN_CHARS_MAX
from contrada.service.security.principals import NOT_PERMITTED, OVER_QUOTA

SUBPROTOCOL: Final = "contrada"
"""The subprotocol of `/ws`. With it a refusal is an `error` message, which a page can read."""

TOKEN_PROTOCOL: Final = "contrada.token."
"""The beginning of the subprotocol that holds the token."""

_BUSY: Final = {"gateway_tokens_max", "gateway_unproven_max", "http_bodies_bytes_max"}
"""Limits of all requests together: a later request may succeed."""

_STATUSES: Final = (
    (HTTPStatus.FORBIDDEN, (errors.NotPermittedError,)),
    (HTTPStatus.TOO_MANY_REQUESTS, (errors.QuotaError,)),
    (HTTPStatus.SERVICE_UNAVAILABLE, (errors.ConnectionFailedError, errors.ServiceClosedError)),
    (HTTPStatus.BAD_GATEWAY, (errors.ProtocolError,)),
    (HTTPStatus.SERVICE_UNAVAILABLE, (errors.CannotPublishError, errors.StoreError)),
    (HTTPStatus.CONFLICT, (errors.DeliveryError,)),
    (HTTPStatus.BAD_REQUEST, (errors.ContradaError,)),
)
"""The first class that fits decides."""

_ASKED: Final = {"WWW-Authenticate": 'Bearer realm="contrada"'}


def json_answer(
    content: Any, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> Response:
    """Returns an answer with JSON content."""
    body = msgspec.json.encode(content)
    return Response(body, status, headers=headers, media_type="application/json")


def refusal_of(error: errors.ContradaError) -> errors.RefusedRequestError:
    """Returns the status, reason and headers by which an error is answered."""
    if isinstance(error, errors.RefusedRequestError):
        return error
    text = _sendable(error)
    if isinstance(error, errors.ConnectionFailedError) and error.fault == NOT_PERMITTED:
        reason = error.reason.removeprefix("the broker reports: ")
        return errors.RefusedRequestError(HTTPStatus.UNAUTHORIZED, reason, headers=_ASKED)
    if isinstance(error, errors.ConnectionFailedError) and error.fault == OVER_QUOTA:
        return errors.RefusedRequestError(HTTPStatus.TOO_MANY_REQUESTS, text)
    if isinstance(error, errors.LimitError) and error.limit in _BUSY:
        later = {"Retry-After": "1"}
        return errors.RefusedRequestError(HTTPStatus.SERVICE_UNAVAILABLE, text, headers=later)
    if isinstance(error, errors.QuotaError) and error.retry_in_s:
        later = {"Retry-After": str(error.retry_in_s)}
        return errors.RefusedRequestError(HTTPStatus.TOO_MANY_REQUESTS, text, headers=later)
    status = next(status for status, kinds in _STATUSES if isinstance(error, kinds))
    return errors.RefusedRequestError(status, text)


def invalid(error: Exception, **details: Any) -> errors.RefusedRequestError:
    """Returns the refusal of a malformed request."""
    is_surrogate = isinstance(error, UnicodeEncodeError)
    reason = "a lone surrogate is not text" if is_surrogate else _sendable(error)
    return errors.RefusedRequestError(HTTPStatus.BAD_REQUEST, reason, **details)


def _sendable(error: Exception) -> str:
    """Returns the message of an error as UTF-8 text: it may quote lone surrogates."""
    return errors.shortened(str(error).encode(errors="backslashreplace").decode())


def error_members(error: errors.ContradaError) -> dict[str, Any]:
    """Returns the members of the answer to a request that failed, beside its status."""
    refusal = refusal_of(error)
    members = {"error": refusal.reason, **refusal.details}
    if error.published is not None:
        members.setdefault("published", error.published)
    return members


def answer_of(error: errors.ContradaError) -> Response:
    """Returns the answer to a request that failed."""
    refusal = refusal_of(error)
    return json_answer(error_members(error), refusal.status, refusal.headers)


def parameters_of(request: HTTPConnection, known: Collection[str]) -> Mapping[str, str]:
    """Returns the parameters in the query of a request, each at most once.

    Raises InvalidValueError for another one. `access_token` is known.
    """
    query = request.query_params
    if strange := sorted({*query} - {*known, "access_token"}):
        reason = f"no parameter; there are {', '.join(sorted({*known, 'access_token'}))}"
        raise errors.InvalidValueError(errors.shortened(strange[0], 40), reason)
    if twice := [name for name in query if len(query.getlist(name)) > 1]:
        raise errors.InvalidValueError(twice[0], "the parameter is there twice")
    return query


def token_of(request: HTTPConnection) -> str:
    """Returns the token of a request, empty if absent. Raises RefusedRequestError, LimitError. The
    token is in `Authorization: Bearer`; since a browser's EventSource and WebSocket cannot set
    headers, also in the subprotocols of a WebSocket, or in the query as `access_token`.
    """
    given = request.headers.get("authorization")
    if given is None:
        token = token_of_protocols(request.scope.get("subprotocols", ()))
        if not token and request.scope["query_string"]:
            token = request.query_params.get("access_token", "")
    else:
        scheme, _, token = given.partition(" ")
        token, is_bearer = token.strip(), scheme.lower() == "bearer"
        if not is_bearer or not token:
            found = "no token" if is_bearer else f"the scheme {errors.shortened(scheme, 40)!r}"
            reason = f"found {found}, expected Bearer NAME.SECRET"
            raise errors.RefusedRequestError(HTTPStatus.UNAUTHORIZED, reason, headers=_ASKED)
    if len(token) > TOKEN_CHARS_MAX:
        raise errors.LimitError("TOKEN_CHARS_MAX", TOKEN_CHARS_MAX, len(token))
    if not token:
        return ""
    # The broker sees only the connection of the gateway.
    is_local = request.client is not None and is_loopback(request.client.host)
    if not is_local and request.scope.get("scheme") not in ("https", "wss"):
        reason = "a token is taken over HTTPS, or from this machine only"
        raise errors.RefusedRequestError(HTTPStatus.FORBIDDEN, reason)
    return token


def token_of_protocols(offered: Sequence[str]) -> str:
    """Returns the token of a WebSocket among its subprotocols, empty if absent.

    A browser's WebSocket can set no headers, and an address is kept by logs and proxies. The
    subprotocols are the one part of the handshake that a page chooses besides. The client offers
    SUBPROTOCOL, which the server selects, and the token behind TOKEN_PROTOCOL in base64url: a token
    may hold characters that no subprotocol may. Raises RefusedRequestError for a malformed one.
    """
    found = [each for each in offered if each.startswith(TOKEN_PROTOCOL)]
    if not found:
        return ""
    encoded = found[0].removeprefix(TOKEN_PROTOCOL)
    padded = encoded + "=" * (-len(encoded) % 4)
    try:
        return b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        reason = f"the subprotocol {TOKEN_PROTOCOL}…: expected NAME.SECRET in base64url"
        raise errors.RefusedRequestError(HTTPStatus.UNAUTHORIZED, reason) from None

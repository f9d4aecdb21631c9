"""`/subscriptions`: the CloudEvents Subscriptions API, for pushing to sinks over HTTP.

A subscription belongs to the token that made it, and nobody else sees it. These members are used:
`source`, `types` and `filters` (its events), `sink`, `protocol` and `protocolsettings` with
`headers`; `config` is kept and shown. What is told has a `status` besides: how it gets on.

Source: CloudEvents Subscriptions API 1.0-wip §3.
"""

from http import HTTPStatus

import msgspec
from starlette.responses import Response

from contrada.errors import RefusedRequestError
from contrada.integrations.dialects.json_text import decoded
from contrada.integrations.http.http_responses import json_answer
from contrada.integrations.http.push_service import Pushes
from contrada.integrations.http.request_filters import FILTER_CHARACTERS_MAX, within_work
from contrada.integrations.http.subscription_request import wanted_of


class SubscriptionsApi:
    """The answers of the API."""

    def __init__(self, pushes: Pushes) -> None:
        self._pushes = pushes

    async def begin(self, token: str, body: bytes) -> Response:
        """201 and the subscription, with its id. Raises ContradaError."""
        if len(body) > FILTER_CHARACTERS_MAX:
            raise RefusedRequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"{len(body)} bytes, more than FILTER_CHARACTERS_MAX = {FILTER_CHARACTERS_MAX}",
            )
        wanted = wanted_of(decoded(body))
        self._pushes.sinks.check(wanted.sink)
        rule = await within_work(wanted.rule, len(body))
        push = await self._pushes.begin(token, msgspec.to_builtins(wanted), rule)
        return json_answer(
            push.shown(), HTTPStatus.CREATED, {"Location": f"/subscriptions/{push.id}"}
        )

    def all_of(self, token: str) -> Response:
        """Those of a token."""
        return json_answer([push.shown() for push in self._pushes.of(token)])

    def one_of(self, token: str, name: str) -> Response:
        """One of them. Raises RefusedRequestError."""
        return json_answer(self._pushes.one(token, name).shown())

    async def end(self, token: str, name: str) -> Response:
        """204: nothing more is pushed. Raises RefusedRequestError."""
        await self._pushes.end(self._pushes.one(token, name), token)
        return Response(status_code=HTTPStatus.NO_CONTENT)

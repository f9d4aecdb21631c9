"""`Gateway`: the HTTP port of a broker; docs/http.md has its endpoints.

    async with Gateway(local_services(broker), port=8080) as gateway:
        print(gateway.address)

The gateway is only a client of the broker: it passes on the token of each request, and the broker
decides about permissions.

A subscription to a sink belongs to the user of its token, and is invisible to other users. Its
members `source`, `types`, `filters`, `sink`, `protocol` and `protocolsettings.headers` have an
effect; `config` is only stored and shown. The gateway adds a member `status`.

Source: CloudEvents Subscriptions API 1.0-wip §3.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self, TypeAlias
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from contrada.errors import ContradaError, RefusedRequestError, shortened
from contrada.integrations.dialects.json_text import decode_json
from contrada.integrations.http.event_ingest import RequestBodies
from contrada.integrations.http.event_stream import open_stream
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.http_port import HttpPort
from contrada.integrations.http.http_responses import answer_of, json_answer, token_of
from contrada.integrations.http.metrics import GatewayCounts, metrics_answer
from contrada.integrations.http.push_service import Pushes, SubscriptionRequest
from contrada.integrations.http.request_filters import within_work
from contrada.integrations.http.sinks import PUSHED_BY, Sinks
from contrada.integrations.http.token_services import ServiceOfToken, TokenService, TokenServices
from contrada.integrations.http.websocket_api import Conversation
from contrada.integrations.http.websocket_links import CarriedArrivals
from contrada.net.broker.broker import Broker
from contrada.net.wire.address import PATH_DEFAULT, Address, is_loopback
from contrada.net.wire.tls import Tls

HTTP_PORT_DEFAULT: Final = 8080


_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")

_SUBSCRIBE: Final = "/subscribe"
_ELSEWHERE: Final = ("cross-site", "same-site")
"""Values of the header `Sec-Fetch-Site` for a page of another origin."""

RequestHandler: TypeAlias = Callable[[Request], Awaitable[Response]]


class Gateway:
    """Serves HTTP on one address for the broker behind `connect`."""

    def __init__(
        self,
        connect: ServiceOfToken,
        host: str = "127.0.0.1",
        port: int = HTTP_PORT_DEFAULT,
        *,
        limits: GatewayLimits = GatewayLimits(),
        tls: Tls | None = None,
        origins: Sequence[str] = (),
        subscriptions: Path | None = None,
        durable: bool = False,
        private_sinks: bool = False,
        arrivals: CarriedArrivals | None = None,
        users: Broker | None = None,
    ) -> None:
        """Port 0 takes a free one. `connect` returns the service of a token: see `local_services`.

        With a certificate in `tls` the port speaks HTTPS. Pages of `origins` may use it from a
        browser; "*" means all. `subscriptions` is the file of the subscriptions to sinks; without
        it they end with the gateway. They are `durable` where the broker has a store.
        `private_sinks` allows sinks at non-public addresses. `arrivals` accepts clients and
        neighbours of the broker over WebSocket. `users` is the broker that ends the subscriptions
        of removed users; without it they are retried for ever. Raises InputError.
        """
        self._host = host
        self._origins = tuple(origins)
        self._context = tls.server_context(lambda _: None) if tls is not None else None
        self.counts = GatewayCounts()
        self._limits = limits
        self._accesses = TokenServices(connect, limits, lambda token: self._pushes.adopt(token))
        self._bodies = RequestBodies(limits)
        self._is_stopping = False
        self._arrivals = arrivals
        self._pushes = Pushes(
            self._accesses,
            Sinks(limits, is_private_allowed=private_sinks),
            self.counts,
            subscriptions,
            limits=limits,
            is_durable=durable,
            users=users,
        )
        self._port = HttpPort(self._app(), host, port, self._context, limits=limits)

    async def start(self) -> None:
        """Listens. Raises ConnectionFailedError, and InputError for a damaged file."""
        self._pushes.load()
        await self._port.start()
        self._pushes.start()

    async def stop(self) -> None:
        """Refuses further requests, ends streams, and answers running requests. Idempotent."""
        self._is_stopping = True
        self._port.close()
        await self._pushes.aclose()
        await self._accesses.aclose()
        if self._arrivals is not None:
            self._arrivals.close("the HTTP port of this broker stops")
        await self._port.stop()

    @property
    def address(self) -> str:
        """The address of the port, as `http://host:port`."""
        return self._port.address

    def renew(self, tls: Tls) -> None:
        """Loads the certificate files of `tls` again for new connections. Raises InputError."""
        if self._context is not None:
            tls.load_certificate(self._context)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ------------------------------------------------------------------------------- endpoints

    def _app(self) -> Starlette:
        handlers: dict[str, dict[str, RequestHandler]] = {
            "/events": {"POST": self._ingest},
            _SUBSCRIBE: {"GET": self._subscribe},
            "/metrics": {"GET": self._metrics},
            "/healthz": {"GET": self._healthz},
            "/subscriptions": {"POST": self._begin_push, "GET": self._list_pushes},
            "/subscriptions/{id}": {"GET": self._show_push, "DELETE": self._end_push},
        }
        routes = [
            Route(path, self._counted(path, methods), methods=[*methods])
            for path, methods in handlers.items()
        ]
        cors = Middleware(
            CORSMiddleware,
            allow_origins=self._origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
        )
        websockets = [WebSocketRoute("/ws", self._converse)]
        if self._arrivals is not None:
            websockets.append(WebSocketRoute(PATH_DEFAULT, self._arrivals.arrive))
        websockets.append(WebSocketRoute("/{path:path}", _deny_websocket))
        return Starlette(
            routes=[*routes, *websockets],
            exception_handlers={HTTPException: _not_found},
            middleware=[cors] if self._origins else [],
        )

    def _counted(self, path: str, methods: dict[str, RequestHandler]) -> RequestHandler:
        """Returns the handler of a path, which answers errors and counts requests."""

        async def answer(request: Request) -> Response:
            method = "GET" if request.method == "HEAD" else request.method
            try:
                self._check_origin(request)
                response = await methods[method](request)
            except ContradaError as error:
                response = answer_of(error)
            self.counts.requests[f"{method} {path}", response.status_code] += 1
            return response

        return answer

    async def _ingest(self, request: Request) -> Response:
        if request.headers.get(PUSHED_BY) == self._pushes.sinks.identity:
            reason = "this port has pushed this event itself: its sink leads back to this port"
            raise RefusedRequestError(HTTPStatus.LOOP_DETECTED, reason)
        async with self._using(request) as access:
            published = await self._bodies.ingest(request, access)
        self.counts.events += published
        return json_answer({"published": published}, HTTPStatus.ACCEPTED)

    async def _subscribe(self, request: Request) -> Response:
        opened = AsyncExitStack()
        try:
            access: TokenService = await opened.enter_async_context(self._using(request))
            return await open_stream(request, access, opened, self.counts, self._limits)
        except BaseException:
            await opened.aclose()
            raise

    async def _metrics(self, request: Request) -> Response:
        async with self._using(request) as access:
            broker = await access.service.broker_statistics()
        return metrics_answer(broker, self.counts, self._port.connections)

    async def _healthz(self, _: Request) -> Response:
        if self._is_stopping:
            return json_answer({"status": "stopping"}, HTTPStatus.SERVICE_UNAVAILABLE)
        return json_answer({"status": "ok"})

    async def _begin_push(self, request: Request) -> Response:
        token = token_of(request)
        async with self._bodies.read(request) as body, self._using(request):
            most = self._limits.filter_characters_max
            if len(body) > most:
                reason = f"{len(body)} bytes, more than filter_characters_max = {most}"
                raise RefusedRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
            wanted = SubscriptionRequest.from_json(decode_json(body))
            self._pushes.sinks.check(wanted.sink)
            rule = await within_work(wanted.rule, len(body))
            push = await self._pushes.begin(token, msgspec.to_builtins(wanted), rule)
        location = {"Location": f"/subscriptions/{push.id}"}
        return json_answer(push.to_json(), HTTPStatus.CREATED, location)

    async def _list_pushes(self, request: Request) -> Response:
        async with self._using(request):
            return json_answer([push.to_json() for push in self._pushes.of(token_of(request))])

    async def _show_push(self, request: Request) -> Response:
        async with self._using(request):
            push = self._pushes.one(token_of(request), request.path_params["id"])
            return json_answer(push.to_json())

    async def _end_push(self, request: Request) -> Response:
        async with self._using(request):
            token = token_of(request)
            await self._pushes.end(self._pushes.one(token, request.path_params["id"]), token)
            return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _converse(self, websocket: WebSocket) -> None:
        try:
            self._check_origin(websocket)
            async with self._using(websocket) as access:
                self.counts.requests["GET /ws", HTTPStatus.SWITCHING_PROTOCOLS] += 1
                await Conversation(websocket, access, self.counts, self._limits).run()
        except ContradaError as error:
            answer = answer_of(error)
            self.counts.requests["GET /ws", answer.status_code] += 1
            await websocket.send_denial_response(answer)

    def _using(self, request: HTTPConnection) -> AbstractAsyncContextManager[TokenService]:
        """Returns the broker connection for the token of a request. Raises ContradaError."""
        client = request.client
        peer = "" if client is None else Address(client.host, client.port).place
        return self._accesses.use(token_of(request), f"HTTP {peer}")

    def _check_origin(self, request: HTTPConnection) -> None:
        """Refuses pages of other origins that `origins` does not name, as CORS covers only some.

        On loopback the `Host` header must name this host: a page could otherwise reach the port by
        a name that is moved to it later (DNS rebinding). An image request has no `Origin`, but
        would begin or resume a durable subscription. Raises RefusedRequestError.
        """
        origin = request.headers.get("origin")
        host = request.headers.get("host", "")
        if is_loopback(self._host) and _hostname(host) not in (*_LOOPBACK, self._host, ""):
            reason = f"found the host {host[:80]!r}, expected {self._host}, where this listens"
            raise RefusedRequestError(HTTPStatus.MISDIRECTED_REQUEST, reason)
        if "*" in self._origins or origin in self._origins:
            return
        if origin is None:
            is_cross_site = request.headers.get("sec-fetch-site") in _ELSEWHERE
            if not (is_cross_site and request.scope["path"] == _SUBSCRIBE):
                return
            origin = "another origin"
        if origin.partition("://")[2].lower() != host.lower():
            reason = f"pages of {origin[:80]} may not use this; the setting origins says which may"
            raise RefusedRequestError(HTTPStatus.FORBIDDEN, reason)


async def _deny_websocket(websocket: WebSocket) -> None:
    answer = await _not_found(websocket, HTTPException(HTTPStatus.NOT_FOUND))
    await websocket.send_denial_response(answer)


async def _not_found(request: HTTPConnection, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, headers = shortened(request.url.path, 80), dict(error.headers or {})
    reason = "there is nothing here; see docs/http.md"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(sorted(headers["Allow"].split(", ")))  # Starlette joins a set.
        method = shortened(request.scope["method"], 20)
        reason = f"found the method {method}, expected {headers['Allow']}"
    return json_answer({"error": f"{path!r}: {reason}"}, error.status_code, headers)


def _hostname(host: str) -> str:
    """Returns the host of a `Host` header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return "?"

"""The HTTP port of a broker.

    async with Gateway(beside(broker), port=8080) as gateway:
        print(gateway.address)

It is a client of the broker and nothing more: the token of a request goes on to the broker as its
own, and what that may do the broker decides.

    POST /events          CloudEvents in: binary, structured, batches
    GET /subscribe        what matches as server-sent events
    /ws                   both as JSON over a WebSocket
    /subscriptions        the CloudEvents Subscriptions API: push to a sink
    GET /metrics          for Prometheus
    GET /healthz          whether it is there
    /contrada             clients and neighbours of the broker, by WebSocket
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self, TypeAlias
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from contrada.errors import ContradaError, RefusedRequestError, shortened
from contrada.integrations.http.event_ingest import Bodies, ingest
from contrada.integrations.http.event_stream import STREAM_CREDIT_BYTES, open_stream
from contrada.integrations.http.gateway_counts import GatewayCounts
from contrada.integrations.http.http_port import HttpPort
from contrada.integrations.http.http_responses import answer_of, json_answer, token_of
from contrada.integrations.http.local_client import local_service
from contrada.integrations.http.metrics import metrics_answer
from contrada.integrations.http.push_service import Pushes, UserHost
from contrada.integrations.http.sinks import PUSHED_BY, Sinks
from contrada.integrations.http.subscriptions_api import SubscriptionsApi
from contrada.integrations.http.token_services import ServiceOfToken, TokenService, TokenServices
from contrada.integrations.http.websocket_api import Conversation
from contrada.integrations.http.websocket_links import CarriedArrivals
from contrada.net.broker.broker import Broker
from contrada.net.wire.address import PATH_DEFAULT, Address, is_loopback
from contrada.net.wire.tls import Tls

HTTP_PORT_DEFAULT: Final = 8080


def beside(broker: Broker) -> ServiceOfToken:
    """Reaches a broker of this process, for each token by a connection of its own.

    One that the broker ends, since its user may not come any more, is not made again by itself.
    """
    return partial(local_service, broker, credit_bytes=STREAM_CREDIT_BYTES, reconnect=False)


_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")

_SUBSCRIBE: Final = "/subscribe"
_ELSEWHERE: Final = ("cross-site", "same-site")
"""How a browser says (`Sec-Fetch-Site`) that the page of another origin makes it ask."""

RequestHandler: TypeAlias = Callable[[Request], Awaitable[Response]]


class Gateway:
    """Serves HTTP on one address, for a broker that `connect` reaches."""

    def __init__(
        self,
        connect: ServiceOfToken,
        host: str = "127.0.0.1",
        port: int = HTTP_PORT_DEFAULT,
        *,
        tls: Tls | None = None,
        origins: Sequence[str] = (),
        subscriptions: Path | None = None,
        durable: bool = False,
        private_sinks: bool = False,
        arrivals: CarriedArrivals | None = None,
        users: UserHost | None = None,
    ) -> None:
        """Port 0 takes a free one. `connect` gives the service of a token, see `beside`.

        With a certificate in `tls` it speaks HTTPS. Pages of `origins` may use it from a browser;
        "*" is all. `subscriptions` is the file that keeps those to sinks; without it they end with
        the gateway. They are `durable` where the broker has a store. `private_sinks` allows
        sinks at addresses that are not public. `arrivals` takes clients and neighbours of a broker
        that come by WebSocket. `users` is the broker, which knows whose subscriptions to sinks have
        to end; without it they are tried for ever. Raises InputError.
        """
        self._host = host
        self._origins = tuple(origins)
        self._tls = tls
        self._context = tls.server_context(lambda _: None) if tls is not None else None
        self.counts = GatewayCounts()
        self._accesses = TokenServices(connect)
        self._bodies = Bodies()
        self._is_stopping = False
        self._arrivals = arrivals
        sinks = Sinks(is_private_allowed=private_sinks)
        self._pushes = Pushes(
            self._accesses, sinks, self.counts, subscriptions, is_durable=durable, users=users
        )
        self._api = SubscriptionsApi(self._pushes)
        self._port = HttpPort(self._app(), host, port, self._context)

    async def start(self) -> None:
        """Listen. Raises ConnectionFailedError, and InputError for a file that is damaged."""
        self._pushes.load()
        await self._port.start()
        self._pushes.start()

    async def stop(self) -> None:
        """Take no further requests, end streams, and answer what is under way. Twice is once."""
        self._is_stopping = True
        self._port.close()
        await self._pushes.aclose()
        await self._accesses.aclose()
        if self._arrivals is not None:
            self._arrivals.close("the HTTP port of this broker stops")
        await self._port.stop()

    @property
    def address(self) -> str:
        """Where it listens, as `http://host:port`."""
        return self._port.address

    def renew(self, tls: Tls) -> None:
        """Shows for new connections what the files of `tls` hold now. Raises InputError."""
        if self._context is not None:
            tls.load_certificate(self._context)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ------------------------------------------------------------------------------------ ways

    def _app(self) -> Starlette:
        said: dict[str, dict[str, RequestHandler]] = {
            "/events": {"POST": self._ingest},
            _SUBSCRIBE: {"GET": self._subscribe},
            "/metrics": {"GET": self._metrics},
            "/healthz": {"GET": self._healthz},
            "/subscriptions": {"POST": self._begin, "GET": self._list},
            "/subscriptions/{id}": {"GET": self._show, "DELETE": self._end},
        }
        routes = [
            Route(path, self._counted(path, ways), methods=[*ways]) for path, ways in said.items()
        ]
        cors = Middleware(
            CORSMiddleware,
            allow_origins=self._origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
        )
        talks = [WebSocketRoute("/ws", self._converse)]
        if self._arrivals is not None:
            talks.append(WebSocketRoute(PATH_DEFAULT, self._arrivals.arrive))
        talks.append(WebSocketRoute("/{path:path}", _no_talk))
        return Starlette(
            routes=[*routes, *talks],
            exception_handlers={HTTPException: _nowhere},
            middleware=[cors] if self._origins else [],
        )

    def _counted(self, path: str, ways: dict[str, RequestHandler]) -> RequestHandler:
        """The ways of a path by method, their errors answered, and counted."""

        async def answered(request: Request) -> Response:
            method = "GET" if request.method == "HEAD" else request.method
            try:
                self._check_origin(request)
                response = await ways[method](request)
            except ContradaError as error:
                response = answer_of(error)
            self.counts.answered(f"{method} {path}", response.status_code)
            return response

        return answered

    async def _ingest(self, request: Request) -> Response:
        if request.headers.get(PUSHED_BY) == self._pushes.sinks.identity:
            reason = "this event was pushed from here: its sink leads back to where it comes from"
            raise RefusedRequestError(HTTPStatus.LOOP_DETECTED, reason)
        async with self._using(request) as access:
            published, response = await ingest(request, access, self._bodies)
        self.counts.events += published
        return response

    async def _subscribe(self, request: Request) -> Response:
        opened = AsyncExitStack()
        try:
            access: TokenService = await opened.enter_async_context(self._using(request))
            return await open_stream(request, access, opened, self.counts)
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

    async def _begin(self, request: Request) -> Response:
        token = token_of(request)
        body = await self._bodies.read(request)
        try:
            async with self._using(request):
                return await self._api.begin(token, body)
        finally:
            self._bodies.release(body)

    async def _list(self, request: Request) -> Response:
        async with self._using(request):
            return self._api.all_of(token_of(request))

    async def _show(self, request: Request) -> Response:
        async with self._using(request):
            return self._api.one_of(token_of(request), request.path_params["id"])

    async def _end(self, request: Request) -> Response:
        async with self._using(request):
            return await self._api.end(token_of(request), request.path_params["id"])

    async def _converse(self, websocket: WebSocket) -> None:
        try:
            self._check_origin(websocket)
            async with self._using(websocket) as access:
                self.counts.answered("GET /ws", HTTPStatus.SWITCHING_PROTOCOLS)
                await Conversation(websocket, access, self.counts).run()
        except ContradaError as error:
            self.counts.refused("GET /ws", error)
            await websocket.send_denial_response(answer_of(error))

    def _using(self, request: HTTPConnection) -> AbstractAsyncContextManager[TokenService]:
        """The connection to the broker of whoever asks. Raises ContradaError."""
        client = request.client
        peer = "" if client is None else Address(client.host, client.port).place
        return self._accesses.use(token_of(request), f"HTTP {peer}")

    def _check_origin(self, request: HTTPConnection) -> None:
        """A page of another origin may not use it unless it is named: browsers do not ask for all.

        On loopback no other name may stand for this host: a page could else be served by a name
        that is moved to it afterwards. What a page asks for as if it were a picture has no origin,
        but would begin, or read on, a durable subscription. Raises RefusedRequestError.
        """
        origin = request.headers.get("origin")
        host = request.headers.get("host", "")
        if is_loopback(self._host) and _name(host) not in (*_LOOPBACK, self._host, ""):
            reason = f"found the host {host[:80]!r}, expected {self._host}, where this listens"
            raise RefusedRequestError(HTTPStatus.MISDIRECTED_REQUEST, reason)
        if "*" in self._origins or origin in self._origins:
            return
        if origin is None:
            is_picture = request.headers.get("sec-fetch-site") in _ELSEWHERE
            if not (is_picture and request.scope["path"] == _SUBSCRIBE):
                return
            origin = "another origin"
        if origin.partition("://")[2].lower() != host.lower():
            reason = f"pages of {origin[:80]} may not use this; the setting origins says which may"
            raise RefusedRequestError(HTTPStatus.FORBIDDEN, reason)


async def _no_talk(websocket: WebSocket) -> None:
    """The answer to a WebSocket for which there is no way."""
    answer = await _nowhere(websocket, HTTPException(HTTPStatus.NOT_FOUND))
    await websocket.send_denial_response(answer)


async def _nowhere(request: HTTPConnection, error: Exception) -> Response:
    """The answer to a request for which there is no way."""
    assert isinstance(error, HTTPException)
    path, headers = shortened(request.url.path, 80), dict(error.headers or {})
    reason = "there is nothing here; see docs/http.md"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(sorted(headers["Allow"].split(", ")))  # They are of a set.
        method = shortened(request.scope["method"], 20)
        reason = f"found the method {method}, expected {headers['Allow']}"
    return json_answer({"error": f"{path!r}: {reason}"}, error.status_code, headers)


def _name(host: str) -> str:
    """The name of a host without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return "?"

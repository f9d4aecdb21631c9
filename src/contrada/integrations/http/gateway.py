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
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeAlias
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from contrada.errors import ContradaError, NotPermittedError, RefusedRequestError, shortened
from contrada.integrations.console.console_pages import ConsoleFiles, console_page
from contrada.integrations.console.group_view import group_view
from contrada.integrations.console.network_view import types_in
from contrada.integrations.console.pasted_records import (
    DocumentAddress,
    PastedDocument,
    answer_document,
    notifications_in,
)
from contrada.integrations.console.playground import Trial, answer_trial
from contrada.integrations.dialects.json_text import decode_json
from contrada.integrations.http.event_ingest import RequestBodies, publish
from contrada.integrations.http.event_stream import open_stream
from contrada.integrations.http.figure_stream import Figures
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.http_port import HttpPort
from contrada.integrations.http.http_responses import answer_of, json_answer, token_of
from contrada.integrations.http.metrics import GatewayCounts, metrics_answer
from contrada.integrations.http.network_api import BrokerRules, NetworkApi, NetworkServices
from contrada.integrations.http.openapi import openapi_json
from contrada.integrations.http.push_service import Pushes, SubscriptionRequest
from contrada.integrations.http.question_stream import Question, Questions
from contrada.integrations.http.queue_api import QUEUE_METHODS, AccessHandler
from contrada.integrations.http.request_filters import within_work
from contrada.integrations.http.request_slots import Trials
from contrada.integrations.http.sink_rules import SinkRules
from contrada.integrations.http.sinks import PUSHED_BY, Sinks
from contrada.integrations.http.token_services import ServiceOfToken, TokenService, TokenServices
from contrada.integrations.http.websocket_api import Conversation, refuse
from contrada.integrations.http.websocket_links import CarriedArrivals
from contrada.net.broker.broker import Broker
from contrada.net.wire.address import PATH_DEFAULT, Address, is_loopback
from contrada.net.wire.tls import Tls

if TYPE_CHECKING:
    from contrada.gossip.udp.gossip_node import GossipNode  # An extra has its libraries.

HTTP_PORT_DEFAULT: Final = 8080

HOSTS_KNOWN_MAX: Final = 64
"""Values of the header `Host` that are kept as read. Beyond it: the least recent is read again."""

_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")

_SUBSCRIBE: Final = "/subscribe"
_ELSEWHERE: Final = ("cross-site", "same-site")
"""Values of the header `Sec-Fetch-Site` for a page of another origin."""

RequestHandler: TypeAlias = Callable[[Request], Awaitable[Response]]
StreamBegin: TypeAlias = Callable[[TokenService, AsyncExitStack], Awaitable[Response]]
StreamOfBody: TypeAlias = Callable[[bytes, TokenService, AsyncExitStack], Awaitable[Response]]
BodyHandler: TypeAlias = Callable[[bytes, TokenService], Awaitable[Response]]


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
        sinks: SinkRules = SinkRules(),
        brokers: BrokerRules = BrokerRules(),
        arrivals: CarriedArrivals | None = None,
        users: Broker | None = None,
        groups: "Sequence[GossipNode]" = (),
    ) -> None:
        """Port 0 takes a free one. `connect` returns the service of a token: see `local_services`.

        With a certificate in `tls` the port speaks HTTPS. Pages of `origins` may use it from a
        browser; "*" means all. `subscriptions` is the file of the subscriptions to sinks; without
        it they end with the gateway. They are `durable` where the broker has a store.
        `sinks` has the allowed destinations, `brokers` the other brokers that may see tokens, for
        the console's view of the network. `arrivals` accepts clients and
        neighbours of the broker over WebSocket. `users` is the broker that ends the subscriptions
        of removed users; without it they are retried for ever. The console shows the `groups` of
        these participants, which are open as long as the gateway. Raises InputError.
        """
        self._host = host
        self._is_local = is_loopback(host)
        self._origins = tuple(origins)
        self._context = tls.server_context(lambda _: None) if tls is not None else None
        self.counts = GatewayCounts()
        self._limits = limits
        self._accesses = TokenServices(
            connect, limits, lambda *accepted: self._pushes.adopt(*accepted)
        )
        self._bodies = RequestBodies(limits)
        self._trials = Trials(limits)
        self._questions = Questions(self.counts, limits)
        self._figures = Figures(self.counts, limits)
        self._groups = tuple(groups)
        self._brokers = NetworkServices(brokers, limits, tls)
        self._network = NetworkApi(self._brokers, self._trials, limits)
        self._is_stopping = False
        self._arrivals = arrivals
        self._pushes = Pushes(
            self._accesses, Sinks(limits, sinks), self.counts, subscriptions, limits, durable, users
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
        await self._port.close()
        await self._pushes.aclose()
        await self._accesses.aclose()
        await self._brokers.aclose()
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
            tls.load_files(self._context)
        self._brokers.renew(tls)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ------------------------------------------------------------------------------- endpoints

    def _handlers(self) -> dict[str, dict[str, RequestHandler]]:
        with_access, with_body = self._with_access, self._with_body
        handlers: dict[str, dict[str, RequestHandler]] = {
            "/events": {"POST": self._ingest, "OPTIONS": with_access(_allow_webhook)},
            _SUBSCRIBE: {"GET": self._subscribe, "HEAD": with_access(_describe_stream)},
            "/metrics": {"GET": with_access(self._metrics)},
            "/healthz": {"GET": self._healthz},
            "/openapi.json": {"GET": _describe},
            "/subscriptions": {
                "POST": with_body(self._begin_push),
                "GET": with_access(self._list_pushes),
            },
            "/subscriptions/{id}": {
                "GET": with_access(self._show_push),
                "DELETE": with_access(self._end_push),
            },
            "/": {"GET": _to_console},
            "/console": {"GET": _to_console},
            "/console/": {"GET": _console},
            "/console/types": {"GET": with_access(_list_types)},
            "/console/network": {"POST": with_body(self._network.show)},
            "/console/forest": {"POST": with_body(self._network.show_forest)},
            "/console/trials": {"POST": with_body(self._try)},
            "/console/documents": {"POST": with_body(self._render)},
            "/console/fetches": {"POST": with_body(self._fetch)},
            "/console/publications": {"POST": with_body(self._send)},
            "/console/questions": {"POST": partial(self._stream_of_body, self._ask)},
            "/console/figures": {"POST": partial(self._stream_of_body, self._draw)},
            "/console/groups": {"GET": with_access(self._show_groups)},
        }
        for path, queue_methods in QUEUE_METHODS.items():
            handlers[path] = {name: with_access(of) for name, of in queue_methods.items()}
        return handlers

    def _routes(self) -> list[BaseRoute]:
        routes: list[BaseRoute] = [
            Route(path, self._counted(path, methods), methods=[*methods])
            for path, methods in self._handlers().items()
        ]
        routes.append(Mount("/console", ConsoleFiles()))
        websockets = [WebSocketRoute("/ws", self._converse)]
        if self._arrivals is not None:
            websockets.append(WebSocketRoute(PATH_DEFAULT, self._arrivals.arrive))
        websockets.append(WebSocketRoute("/{path:path}", _deny_websocket))
        return [*routes, *websockets]

    def _app(self) -> ASGIApp:
        routes = self._routes()
        app = Starlette(routes=routes, exception_handlers={HTTPException: _not_found})
        # The redirect would name the host of the request, which nothing has checked.
        app.router.redirect_slashes = False
        direct = {
            (method, each.path): each.endpoint
            for each in routes
            if isinstance(each, Route) and not each.param_convertors
            for method in each.methods or ()
        }

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            # Nine layers of Starlette would take a tenth of the time of a published event.
            handle = direct.get((scope.get("method", ""), scope["path"]))
            if handle is None:
                await app(scope, receive, send)
            else:
                await (await handle(Request(scope, receive, send)))(scope, receive, send)

        if not self._origins:
            return answer
        return CORSMiddleware(
            answer,
            allow_origins=self._origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
        )

    def _counted(self, path: str, methods: dict[str, RequestHandler]) -> RequestHandler:
        """Returns the handler of a path, which answers errors and counts requests."""

        async def answer(request: Request) -> Response:
            # Of most paths HEAD is GET without the body, which the port leaves out.
            is_own = request.method != "HEAD" or "HEAD" in methods
            method = request.method if is_own else "GET"
            try:
                self._check_origin(request)
                response = await methods[method](request)
            except ContradaError as error:
                response = answer_of(error)
            self.counts.requests[f"{method} {path}", response.status_code] += 1
            return response

        return answer

    def _with_access(self, handle: AccessHandler) -> RequestHandler:
        async def answer(request: Request) -> Response:
            async with self._using(request) as access:
                return await handle(request, access)

        return answer

    def _with_body(self, handle: BodyHandler) -> RequestHandler:
        async def answer(request: Request) -> Response:
            # First the token: strangers could fill the room of all bodies.
            async with self._using(request) as access, self._bodies.read(request) as body:
                return await handle(body, access)

        return answer

    async def _ingest(self, request: Request) -> Response:
        if request.headers.get(PUSHED_BY) == self._pushes.sinks.identity:
            reason = "this port has pushed this event itself: its sink leads back to this port"
            raise RefusedRequestError(HTTPStatus.LOOP_DETECTED, reason)
        async with self._using(request) as access:
            return self._accepted(await self._bodies.ingest(request, access))

    async def _subscribe(self, request: Request) -> Response:
        async def begin(access: TokenService, opened: AsyncExitStack) -> Response:
            return await open_stream(request, access, opened, self.counts, self._limits)

        return await self._stream(request, begin)

    async def _stream(self, request: Request, begin: StreamBegin) -> Response:
        """Returns a stream, which keeps the connection of its token."""
        opened = AsyncExitStack()
        try:
            access: TokenService = await opened.enter_async_context(self._using(request))
            return await begin(access, opened)
        except BaseException:
            await opened.aclose()
            raise

    async def _stream_of_body(self, begin: StreamOfBody, request: Request) -> Response:
        async def read(access: TokenService, opened: AsyncExitStack) -> Response:
            async with self._bodies.read(request) as body:
                return await begin(body, access, opened)

        return await self._stream(request, read)

    async def _metrics(self, _: Request, access: TokenService) -> Response:
        broker = await access.service.broker_statistics()
        return metrics_answer(broker, self.counts, self._port.connections)

    async def _healthz(self, _: Request) -> Response:
        if self._is_stopping:
            return json_answer({"status": "stopping"}, HTTPStatus.SERVICE_UNAVAILABLE)
        return json_answer({"status": "ok"})

    async def _try(self, body: bytes, access: TokenService) -> Response:
        """Answers a trial of the console's playground, which needs nothing of the broker."""
        trial = self._trials.decode(body, Trial)
        return json_answer(await self._trials.run(partial(answer_trial, trial), access.user))

    async def _render(self, body: bytes, access: TokenService) -> Response:
        given = self._trials.decode(body, PastedDocument)
        return json_answer(await self._trials.run(partial(answer_document, given), access.user))

    async def _fetch(self, body: bytes, access: TokenService) -> Response:
        """Answers with the document at an address, for users who may have sinks."""
        given = self._trials.decode(body, DocumentAddress)
        access.check_push()
        return json_answer({"text": await self._pushes.sinks.fetch(given.address)})

    async def _send(self, body: bytes, access: TokenService) -> Response:
        given = self._trials.decode(body, PastedDocument)
        made = await self._trials.run(partial(notifications_in, given), access.user)
        return self._accepted(await publish(access, made))

    def _accepted(self, published: int) -> Response:
        self.counts.events += published
        return json_answer({"published": published}, HTTPStatus.ACCEPTED)

    async def _ask(self, body: bytes, access: TokenService, opened: AsyncExitStack) -> Response:
        """Asks a question, and answers with the events of its sources."""
        return await self._questions.ask(self._trials.decode(body, Question), access, opened)

    async def _draw(self, body: bytes, access: TokenService, opened: AsyncExitStack) -> Response:
        """Answers with the points of a figure of gossip, which needs nothing of the broker."""
        figure = msgspec.json.encode(self._trials.decode(body, dict))
        return await self._figures.begin(figure, access, opened)

    async def _show_groups(self, _: Request, access: TokenService) -> Response:
        """Answers with the groups of this process, for users who may inspect the broker."""
        await access.service.broker_statistics()
        return json_answer({"groups": [group_view(each) for each in self._groups]})

    async def _begin_push(self, body: bytes, access: TokenService) -> Response:
        most = self._limits.filter_characters_max
        if len(body) > most:
            reason = f"{len(body)} bytes, more than filter_characters_max = {most}"
            raise RefusedRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
        wanted = SubscriptionRequest.from_json(decode_json(body))
        self._pushes.sinks.check(wanted.sink)
        rule = await within_work(wanted.rule)
        push = await self._pushes.begin(access, msgspec.to_builtins(wanted), rule)
        location = {"Location": f"/subscriptions/{push.id}"}
        return json_answer(push.to_json(self._limits), HTTPStatus.CREATED, location)

    async def _list_pushes(self, _: Request, access: TokenService) -> Response:
        return json_answer([push.to_json(self._limits) for push in self._pushes.of(access.user)])

    async def _show_push(self, request: Request, access: TokenService) -> Response:
        push = self._pushes.one(access.user, request.path_params["id"])
        return json_answer(push.to_json(self._limits))

    async def _end_push(self, request: Request, access: TokenService) -> Response:
        push = self._pushes.one(access.user, request.path_params["id"])
        await self._pushes.end(push, access.token)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _converse(self, websocket: WebSocket) -> None:
        is_own = False
        try:
            self._check_origin(websocket)
            is_own = True
            async with self._using(websocket) as access:
                self.counts.requests["GET /ws", HTTPStatus.SWITCHING_PROTOCOLS] += 1
                await Conversation(websocket, access, self.counts, self._limits).run()
        except ContradaError as error:
            answer = answer_of(error)
            self.counts.requests["GET /ws", answer.status_code] += 1
            # A page of another origin may not open a WebSocket, nor read a reason in one.
            await (refuse(websocket, error) if is_own else websocket.send_denial_response(answer))

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
        if self._is_local and _hostname(host) not in (*_LOOPBACK, self._host, ""):
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
            reason = (
                f"pages of {origin[:80]} may not use this; the setting origins lists those that may"
            )
            raise RefusedRequestError(HTTPStatus.FORBIDDEN, reason)


async def _allow_webhook(request: Request, _: TokenService) -> Response:
    """Answers the question of a sender of CloudEvents whether it may push events here.

    Without the right to use the port it gets the error of a POST. Source: CloudEvents, HTTP 1.1 Web
    Hooks, §4 (abuse protection).
    """
    headers = {"Allow": "OPTIONS, POST"}
    if (origin := request.headers.get("webhook-request-origin")) is not None:
        headers |= {"WebHook-Allowed-Origin": origin, "WebHook-Allowed-Rate": "*"}
    return Response(headers=headers)


async def _describe_stream(*_: object) -> Response:
    """Answers as for a stream, which does not begin: no durable subscription is resumed."""
    return Response(media_type="text/event-stream")


async def _describe(_: Request) -> Response:
    return Response(openapi_json(), media_type="application/json")


async def _to_console(_: Request) -> Response:
    return RedirectResponse("/console/")


async def _console(_: Request) -> Response:
    return console_page()


async def _list_types(_: Request, access: TokenService) -> Response:
    """Answers with the types of events in the broker's filters, for users who may see these."""
    try:
        held = await access.service.inspection()
    except NotPermittedError as error:
        return json_answer({"types": [], "reason": str(error)})
    texts = (each.text for each in (*held.filters, *held.advertisements))
    return json_answer({"types": types_in(texts)})


async def _deny_websocket(websocket: WebSocket) -> None:
    answer = await _not_found(websocket, HTTPException(HTTPStatus.NOT_FOUND))
    await websocket.send_denial_response(answer)


async def _not_found(request: HTTPConnection, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, headers = shortened(request.url.path, 80), dict(error.headers or {})
    reason = "there is nothing here; `contrada help http` lists the paths"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(sorted(headers["Allow"].split(", ")))  # Starlette joins a set.
        method = shortened(request.scope["method"], 20)
        reason = f"found the method {method}, expected {headers['Allow']}"
    return json_answer({"error": f"{path!r}: {reason}"}, error.status_code, headers)


@lru_cache(maxsize=HOSTS_KNOWN_MAX)
def _hostname(host: str) -> str:
    """Returns the host of a `Host` header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return "?"

"""`App`: a program made of handlers of subscriptions, for a process of its own or a web framework.

app = ct.App("contrada://127.0.0.1:7655")

@app.subscriber("price < 100", durable="cheap")
async def report(quote: StockQuote) -> None: ...

api = FastAPI(lifespan=app.lifespan)    # or: asyncio.run(app.run())
"""

import asyncio
import inspect
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeAlias, TypeVar, get_args, get_origin

from contrada.connections import connect
from contrada.errors import ServiceError
from contrada.model import Filter, FilterSet, Pattern, parse
from contrada.service.callbacks import called, checked_concurrency
from contrada.service.interface import DurableSubscription, Service, Subscription
from contrada.service.query_interface import Replier
from contrada.service.requests import reading_of
from contrada.service.subjects import DurableRecord, OnError, Subscribable

F = TypeVar("F", bound=Callable[..., Any])
Q = TypeVar("Q", bound=Replier)

STOP_WAIT_S: Final = 10.0
"""Wait for running calls of handlers at the end of an app. Beyond it: they are cancelled, those on
threads are reported and run on, and durable records are delivered again."""

_LOOK_S: Final = 0.005

AppSubscription: TypeAlias = Subscription[Any] | DurableSubscription[Any]

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class AppSubscriber:
    """A handler of an app, with the subscription that it gets."""

    function: Callable[..., Any]
    subject: Any
    where: Any
    kind: type | None
    """The class of obvents of the handler's parameter, or None for notifications."""
    takes_record: bool
    """Whether the parameter is the record of a durable subscription, not its item."""
    concurrency: int
    on_error: OnError[Any] | None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self.function, "__name__", repr(self.function))

    def filters(self) -> Filter | FilterSet | Pattern | None:
        """Returns the filters that it subscribes; None for those of an existing durable one.

        Raises as `Service.subscribe`.
        """
        if self.subject is None or isinstance(self.subject, Pattern):
            return self.subject
        return reading_of(self.subject, self.where)[0]

    def subscription(self, service: Service) -> AppSubscription:
        """Returns the subscription, not opened. Raises as `Service.subscribe`."""
        found: AppSubscription = service.subscribe(self.subject, self.where, **self.options)
        return found


class App:
    """Handlers of subscriptions, and the service that they share while the app runs.

    It runs inside `async with`, inside its `lifespan`, or in `run`, and may run again afterwards.
    """

    def __init__(self, address: Any = None, **options: Any) -> None:
        """`address` and `options` are those of `ct.connect`, which each run calls."""
        self.address = address
        """The address of the broker; a test may set another one before the app runs."""
        self._options = options
        self._subscribers: list[AppSubscriber] = []
        self._repliers: list[tuple[Subscribable, Replier, str]] = []
        self._unused: list[Any] = []
        """The subjects of decorators that decorate nothing yet."""
        self._service: Service | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._gates: list[_Gate] = []
        self._stack = AsyncExitStack()

    @property
    def subscribers(self) -> tuple[AppSubscriber, ...]:
        """The handlers so far."""
        return tuple(self._subscribers)

    @property
    def repliers(self) -> tuple[tuple[Subscribable, Replier, str], ...]:
        """The subjects, functions and names of the repliers so far."""
        return tuple(self._repliers)

    def subscriber(
        self,
        subject: Any = None,
        where: Any = None,
        *,
        concurrency: int = 1,
        on_error: OnError[Any] | None = None,
        **options: Any,
    ) -> Callable[[F], F]:
        """Decorates a function that is called with each object of a subscription.

        The class of its parameter decides: obvents of a class of obvents, which `subject` narrows,
        may be left out, or is a predicate; records for `DurableRecord`; notifications otherwise.
        `options` are those of `Service.subscribe`, `concurrency` and `on_error` those of `handle`.
        An `async` function runs on the event loop, another one on a thread. The function itself is
        returned unchanged. Raises ServiceError for other parameters, and as `ct.parse`.
        """
        if isinstance(subject, str):
            subject = parse(subject)
        checked_concurrency(concurrency)
        self._unused.append(subject)

        def add(function: F) -> F:
            self._use(subject)
            kind, takes_record = _parameter_of(function)
            selects, narrows = (subject, where) if kind is None else (kind, subject)
            if kind is not None and where is not None:
                raise ServiceError(
                    f"{function.__qualname__}: its parameter is the subject, so `where` is one too "
                    "many: give it as the first argument"
                )
            if selects is None and "durable" not in options:
                raise ServiceError(
                    f"{function.__qualname__}: expected a filter, or a parameter of an obvent class"
                )
            self._subscribers.append(
                AppSubscriber(
                    *(function, selects, narrows, kind, takes_record, concurrency, on_error),
                    options,
                )
            )
            return function

        return add

    def replier(self, subject: Subscribable, *, name: str = "") -> Callable[[Q], Q]:
        """Decorates a function that replies to requests; see `Service.reply`."""
        self._unused.append(subject)

        def add(function: Q) -> Q:
            self._use(subject)
            self._repliers.append((subject, function, name))
            return function

        return add

    def _use(self, subject: Any) -> None:
        self._unused = [each for each in self._unused if each is not subject]

    @property
    def is_running(self) -> bool:
        """Whether it is connected, with all subscriptions in force."""
        return self._service is not None

    def service(self) -> Service:
        """Returns the running service, as for `Depends(app.service)`.

        Raises ServiceError while the app does not run.
        """
        if self._service is None:
            raise ServiceError(
                "the app does not run: use lifespan=app.lifespan, `async with app`, or app.run()"
            )
        return self._service

    async def __aenter__(self) -> Self:
        """Connects, and puts all subscriptions in force. Raises as `connect` and `subscribe`."""
        if self._service is not None:
            raise ServiceError("the app runs already")
        if self._unused:
            shown = getattr(self._unused[0], "__qualname__", str(self._unused[0]))
            raise ServiceError(f"{shown}: a decorator has no function: write @app.subscriber(…)")
        async with AsyncExitStack() as stack:
            service = await stack.enter_async_context(connect(self.address, **self._options))
            for subject, function, name in self._repliers:
                await stack.enter_async_context(service.reply(subject, function, name=name))
            gates = []
            for each in self._subscribers:
                try:
                    subscription = each.subscription(service)
                    await stack.enter_async_context(subscription)
                except Exception as error:
                    error.add_note(f"the subscriber {each.name!r} of an app")
                    raise
                gates.append(_Gate(each, subscription))
            self._gates, self._tasks = gates, []
            for gate in gates:
                each, subscription = gate.subscriber, gate.subscription
                handling = subscription.handle(
                    gate.call, concurrency=each.concurrency, on_error=gate.failed
                )
                task = asyncio.create_task(handling, name=each.name)
                task.add_done_callback(_log_failure)
                self._tasks.append(task)
            self._service, self._stack = service, stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Lets calls end, and closes. Raises the errors that ended subscriptions."""
        for gate in self._gates:
            gate.close()
        calls = list(zip(self._gates, self._tasks, strict=True))
        try:
            async with asyncio.timeout(STOP_WAIT_S):
                while not all(gate.is_idle or task.done() for gate, task in calls):
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            for gate in self._gates:
                gate.warn_of_threads()
        finally:  # Also when it is cancelled.
            for task in self._tasks:
                task.cancel()
            ended = await asyncio.gather(*self._tasks, return_exceptions=True)
            self._service, self._tasks = None, []
            await self._stack.aclose()
        errors = [each for each in ended if isinstance(each, Exception)]
        if errors:
            raise errors[0] if len(errors) == 1 else ExceptionGroup("subscribers failed", errors)

    @asynccontextmanager
    async def lifespan(self, of: object = None) -> AsyncIterator[None]:
        """The lifespan of a Starlette or FastAPI application: the app runs inside it.

        In a lifespan of your own: `async with app.lifespan(): ...`.
        """
        async with self:
            yield

    async def run(self) -> None:
        """Runs until SIGTERM, Ctrl-C, a cancellation, or until a subscription ends.

        Raises the error that ended it. Outside the main thread SIGTERM is left alone.
        """
        loop, main = asyncio.get_running_loop(), asyncio.current_task()
        assert main is not None
        is_handled = threading.current_thread() is threading.main_thread()
        is_stopped = False

        def stop() -> None:
            nonlocal is_stopped
            is_stopped = True
            main.cancel()

        if is_handled:
            loop.add_signal_handler(signal.SIGTERM, stop)
        try:
            async with self:
                if not self._tasks:
                    await asyncio.Event().wait()
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if not is_stopped:
                raise
            main.uncancel()
        finally:
            if is_handled:
                loop.remove_signal_handler(signal.SIGTERM)


class _Gate:
    """The calls of one handler, which end in order."""

    def __init__(self, subscriber: AppSubscriber, subscription: AppSubscription) -> None:
        self.subscriber, self.subscription = subscriber, subscription
        self._is_async = inspect.iscoroutinefunction(subscriber.function)
        self._running = 0
        self._left: int | None = None

    def close(self) -> None:
        """Begins no more calls but those of queued notifications, which nobody else has.

        Records of durable subscriptions are left to other readers, or the next run.
        """
        is_durable = "durable" in self.subscriber.options
        self._left = 0 if is_durable else self.subscription.statistics().queued

    @property
    def is_idle(self) -> bool:
        """Whether it is closed, and no call runs, nor will one begin."""
        if self._left and not self.subscription.statistics().queued:
            self._left = 0  # The others have expired.
        return self._left == 0 and not self._running

    def warn_of_threads(self) -> None:
        """Logs that calls still run which cannot be cancelled."""
        if self._running and not self._is_async:
            told = "%(count)d calls of the subscriber %(subscriber)s still run on threads, which "
            fields = {"count": self._running, "subscriber": self.subscriber.name}
            _LOG.warning(told + "hold up the end of the process until they return", fields)

    def call(self, item: Any) -> Coroutine[Any, Any, object]:
        """Calls the function with an object, or its item; a plain function on a thread."""
        if self._left is not None:
            if not self._left:
                return asyncio.Event().wait()  # Until it is cancelled: it has not begun.
            self._left -= 1
        self._running += 1  # Now, since the queue no longer counts it.
        return self._called(self._given(item))

    async def _called(self, given: Any) -> None:
        try:
            if self._is_async:
                await self.subscriber.function(given)
            else:
                result = await asyncio.to_thread(self.subscriber.function, given)
                if inspect.isawaitable(result):  # Of an object whose call is `async`.
                    await result
        finally:
            self._running -= 1

    async def failed(self, error: Exception, item: Any) -> None:
        """Passes an exception of the function to `on_error`."""
        if self.subscriber.on_error is not None:
            await called(self.subscriber.on_error, error, self._given(item))

    def _given(self, item: Any) -> Any:
        is_record = isinstance(item, DurableRecord)
        return item.item if is_record and not self.subscriber.takes_record else item


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        fields = {"subscriber": task.get_name(), "reason": error}
        _LOG.error("the subscriber %(subscriber)s has ended: %(reason)r", fields)


def _parameter_of(function: Callable[..., Any]) -> tuple[type | None, bool]:
    """Returns the class of obvents that a function takes, if any, and whether it takes records.

    Raises ServiceError.
    """
    name = getattr(function, "__qualname__", repr(function))
    try:
        parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    except NameError as error:
        raise ServiceError(
            f"{name}: the annotation {error.name!r} is unknown at run time: import it outside "
            "`if TYPE_CHECKING`"
        ) from None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [each for each in parameters if each.default is each.empty]
    if len(required) > 1 or not parameters or parameters[0].kind not in positional:
        shown = ", ".join(each.name for each in parameters)
        raise ServiceError(f"{name}({shown}): expected one parameter, for the notification")
    annotation = parameters[0].annotation
    takes_record = DurableRecord in (annotation, get_origin(annotation))
    if takes_record:
        (annotation,) = get_args(annotation) or (None,)
    is_obvent = hasattr(annotation, "from_notification") and hasattr(annotation, "to_filters")
    return (annotation if is_obvent else None), takes_record

"""`Connection`: one end of a connection as a pure state machine of bytes and frames.

It has no socket and no clock: the time is an argument. It checks the rules for every peer: one
hello, first; only frames of its role; signs of life in time. After a FrameError the owner sends the
frames of `outgoing`, and closes.

    both hellos, in any order ==> frames ==> a goodbye or a fault, which closes it

The model is h2: the protocol without input and output.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from contrada.errors import FrameError
from contrada.net.wire.frames import (
    AboutQuestions,
    Credit,
    CutOff,
    Delivery,
    Failure,
    FewPublished,
    Frame,
    FrameReader,
    Goodbye,
    Hello,
    Hop,
    HopCredit,
    HopPart,
    InspectReply,
    InspectRequest,
    LogDelivery,
    LogHop,
    LogReply,
    LogRequest,
    MatchDelivery,
    Offers,
    Ping,
    Pong,
    QuestionDelivery,
    Reply,
    Request,
    StatisticsReply,
    StatisticsRequest,
    encode,
)

CLIENT: Final = "client"
BROKER: Final = "broker"
NEIGHBOUR: Final = "neighbour"
"""The role of a broker that has connected to another one."""

PUBLISHER: Final = "publisher"
"""The capability with the publisher prefix that a broker assigns to a client."""

USER: Final = "user"
"""The capability with the name of a client's user."""

SINKS: Final = "sinks"
"""The capability whose value is whether the user may have subscriptions to sinks."""

_LAST: Final = (Goodbye, Failure)
_ALIVE: Final = (Ping, Pong)
_ALLOWED: Final[dict[tuple[str, str], tuple[type[Frame], ...]]] = {
    (CLIENT, BROKER): (
        *(
            Request,
            FewPublished,
            Credit,
            AboutQuestions,
            StatisticsRequest,
            InspectRequest,
            LogRequest,
        ),
        *(*_ALIVE, *_LAST),
    ),
    (BROKER, CLIENT): (
        *(Reply, Delivery, MatchDelivery, CutOff, Offers, StatisticsReply, InspectReply),
        *(LogReply, LogDelivery, QuestionDelivery, AboutQuestions, *_ALIVE, *_LAST),
    ),
    (NEIGHBOUR, BROKER): (Hop, HopPart, HopCredit, LogHop, *_ALIVE, *_LAST),
    (BROKER, NEIGHBOUR): (Hop, HopPart, HopCredit, LogHop, *_ALIVE, *_LAST),
}
"""The frames that a side may send, by (sender, receiver)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivenessLimits:
    """Time-outs of a connection, at both ends."""

    hello_wait_s: float = 10.0
    """How long the first frame may take. Beyond it: the connection is closed."""
    ping_after_s: float = 20.0
    """How long the other side may be silent. Beyond it: it gets a Ping."""
    silent_s_max: float = 60.0
    """How long the other side may be silent. Beyond it: the connection is closed."""


USUAL_LIVENESS: Final = LivenessLimits()


class Connection:
    """The state of one end of a connection."""

    def __init__(
        self,
        hello: Hello,
        peer_roles: tuple[str, ...],
        now_s: float,
        liveness: LivenessLimits = USUAL_LIVENESS,
    ) -> None:
        """`hello` is that of this side; `peer_roles` are allowed for the other side."""
        self._hello = hello
        self._liveness = liveness
        self._peer_roles = peer_roles
        self.reader = FrameReader(expects_hello=True)
        """The received bytes that `next` has not returned."""
        self.outgoing: list[bytes] = []
        """The encoded frames to send; the owner clears it."""
        self._usual: frozenset[type[Frame]] = frozenset()
        """The frames of the other side that are returned without a check; none before its hello."""
        self._began_s = now_s
        self._heard_s = now_s
        self._pinged = False
        self._has_greeted = False
        self.is_closed = False
        """Whether nothing is sent or read any more."""
        self.peer: Hello | None = None
        self.greets_at_once = True
        """Whether a hello is answered on receipt; else by `welcome`, later."""

    def greet(self) -> None:
        """Sends the hello, once."""
        assert not self._has_greeted, "the hello is sent once"
        self._has_greeted = True
        self.send(self._hello)

    def welcome(self, additional: Mapping[str, str | bool] | None = None) -> None:
        """Answers the other side's hello, once, with additional capabilities."""
        if not self._has_greeted:
            if additional:
                capabilities = {**self._hello.capabilities, **additional}
                self._hello = replace(self._hello, capabilities=capabilities)
            self.greet()

    def send(self, frame: Frame) -> int:
        """Appends a frame to `outgoing`; returns its bytes. A closed connection sends nothing."""
        if self.is_closed:
            return 0
        encoded = encode(frame)
        self.outgoing.append(encoded)
        return len(encoded)

    def receive(self, data: bytes, now_s: float) -> None:
        """Adds received bytes; `next` returns their frames."""
        if not self.is_closed:
            self._heard_s = now_s
            self._pinged = False
            self.reader.feed(data)

    def next(self) -> Frame | None:
        """Returns the next frame, or None. Hellos and pings are answered here.

        Raises FrameError when the peer broke the protocol: `outgoing` ends with a Failure, and the
        connection is closed. Earlier frames are unaffected.
        """
        if self.is_closed:
            return None
        try:
            frame = self.reader.next()
            if frame is not None and type(frame) not in self._usual:
                self._check(frame)
        except FrameError as error:
            self.fail(error)
            raise
        return frame

    def tick(self, now_s: float) -> None:
        """Sends a Ping to a silent peer. Raises FrameError after `silent_s_max`."""
        silent_s = now_s - self._heard_s
        try:
            if self.peer is None and now_s - self._began_s >= self._liveness.hello_wait_s:
                raise FrameError("no hello", f"no hello within {self._liveness.hello_wait_s:g} s")
            if silent_s >= self._liveness.silent_s_max:
                raise FrameError("silent", f"nothing heard for {self._liveness.silent_s_max:g} s")
        except FrameError as error:
            self.fail(error)
            raise
        if silent_s >= self._liveness.ping_after_s and not self._pinged:
            self._pinged = True
            self.send(Ping(0))

    def fail(self, error: FrameError) -> None:
        """Sends the peer its fault, as the last frame."""
        self.send(Failure(error.code, error.reason))
        self._set_closed()

    def close(self, reason: str = "") -> None:
        """Sends a goodbye, as the last frame."""
        self.send(Goodbye(reason))
        self._set_closed()

    def drop_unread(self) -> None:
        """Frees the received bytes that `next` has not returned, as no more will follow."""
        self.reader = FrameReader()

    def _set_closed(self) -> None:
        self.is_closed = True
        self.drop_unread()

    def _check(self, frame: Frame) -> None:
        if isinstance(frame, _LAST):
            self._set_closed()
        elif self.peer is None:
            self._meet(frame)
        elif not isinstance(frame, _ALLOWED[self.peer.role, self._hello.role]):
            raise FrameError(
                "unexpected", f"a {self.peer.role} may not send {type(frame).__name__} now"
            )
        elif isinstance(frame, Ping):
            self.send(Pong(frame.token))

    def _meet(self, frame: Frame) -> None:
        if not isinstance(frame, Hello):
            raise FrameError("no hello", f"the first frame is {type(frame).__name__}, not Hello")
        if frame.role not in self._peer_roles:
            expected = " or a ".join(self._peer_roles)
            raise FrameError("role", f"the other side is a {frame.role!r}, expected a {expected}")
        self.peer = frame
        self.reader.expects_hello = False
        self._usual = frozenset(_ALLOWED[frame.role, self._hello.role]) - {Ping, *_LAST}
        if self.greets_at_once:
            self.welcome()

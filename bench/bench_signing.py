"""The cost of signing and verifying a notification, beside Ed25519 alone."""

from collections.abc import Callable, Sequence
from time import process_time
from typing import Any, Final

from bench.harness import Measurement, figure
from contrada.model import Envelope, Notification, to_msgpack
from contrada.model.codec import notification_to_read
from contrada.service.envelope_factory import EnvelopeFactory
from contrada.service.security.signatures import Signer, Verifier, signed_bytes
from contrada.service.security.signing_keys import new_private_key

COUNT: Final = 1_000
ROUNDS: Final = 9
KEY: Final = new_private_key()
SIGNER: Final = Signer("desk", KEY)
VERIFIER: Final = Verifier({"desk": SIGNER.public_key})
QUOTES: Final = [
    Notification(
        {"symbol": "DIS", "price": 61.5, "venue": "X", "size": number},
        envelope=Envelope(f"desk.4f0c.{number}", "desk", number, 1_700_000_000_000_000 + number),
    )
    for number in range(1, COUNT + 1)
]


def alternately(
    do: Callable[[Any], object],
    items: Sequence[Any],
    peer: str,
    peer_does: Callable[[Any], object],
    peer_items: Sequence[Any],
) -> Measurement:
    """Seconds of the processor for one of each, in turns."""
    samples: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for found, work, each in zip(samples, (do, peer_does), (items, peer_items), strict=True):
            begin = process_time()
            for item in each:
                work(item)
            found.append((process_time() - begin) / len(each))
    return Measurement(samples[0], peer, samples[1])


@figure(
    name="signing/sign",
    unit="us",
    workload="sign a stamped notification of four attributes",
    at_most=100,
)
def sign() -> Measurement:
    said = [signed_bytes(each, each.envelope.id) for each in QUOTES]
    return alternately(SIGNER.signed, QUOTES, "Ed25519", KEY.sign, said)


@figure(
    name="signing/verify", unit="us", workload="read and verify one from its bytes", at_most=250
)
def verify() -> Measurement:
    packed = [to_msgpack(SIGNER.signed(each)) for each in QUOTES]
    said = [(KEY.sign(each), each) for each in (signed_bytes(of, "") for of in QUOTES)]
    public = KEY.public_key()
    return alternately(
        lambda data: VERIFIER.check(notification_to_read(data)),
        packed,
        "Ed25519",
        lambda pair: public.verify(*pair),
        said,
    )


@figure(
    name="signing/publish",
    unit="us",
    workload="stamp and pack a mapping of four attributes, signed",
)
def publish() -> Measurement:
    items = [dict(each.attributes) for each in QUOTES]
    return alternately(
        EnvelopeFactory(SIGNER).packed, items, "unsigned", EnvelopeFactory("desk").packed, items
    )

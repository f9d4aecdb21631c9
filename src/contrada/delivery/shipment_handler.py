"""`ShipmentHandler`: hands the body of each shipment, in its turn, to its part of the server."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

from contrada.delivery import delivery_messages as messages
from contrada.delivery.access_point import AccessPoint
from contrada.delivery.consumers import Consumers
from contrada.delivery.inbox import ArrivedShipment
from contrada.delivery.orders import Causality
from contrada.delivery.owned_logs import OwnedLogs
from contrada.errors import CannotPublishError, ContradaError, LimitError, StoreError


@dataclass(eq=False)
class ShipmentHandler:
    """The handler of one server. `refused` counts invalid shipments."""

    name: str
    _logs: OwnedLogs
    _access: AccessPoint
    _causality: Causality
    _consumers: Consumers
    refused: int = 0

    def use(self, source: str, turn: Sequence[ArrivedShipment], now_us: int) -> int:
        """Handles shipments in order. Returns the number that could be handled now."""
        done = 0
        for is_notice, group in groupby(turn, key=_is_notice):
            arrivals = list(group)
            with suppress(LimitError):  # for a large one, which is refused below, alone
                if is_notice and self._keep(arrivals, now_us):
                    done += len(arrivals)
                    continue
            for arrival in arrivals:
                if not self._use_one(source, arrival, now_us):
                    return done
                done += 1
        return done

    def _keep(self, arrivals: Sequence[ArrivedShipment], now_us: int) -> bool:
        """Appends notifications to the logs; False if the stores have no room for all."""
        bodies = ((address.ids, shipment.body) for address, shipment in arrivals)
        found = [(ids, it.notification) for ids, it in bodies if isinstance(it, messages.Notice)]
        if not self._logs.append(found, now_us):
            return False
        last: messages.Context = ()
        for _, shipment in arrivals:
            if shipment.context is not last:  # a publication of several shares one
                last = shipment.context
                self._causality.merge(last)
        return True

    def _use_one(self, source: str, arrival: ArrivedShipment, now_us: int) -> bool:
        shipment = arrival[1]
        body = shipment.body
        self._causality.merge(shipment.context)
        try:
            match body:
                case messages.Notice():
                    if not self._keep([arrival], now_us):
                        return False
                case messages.ToSequence():
                    self._access.order_notification(
                        source, body, now_us, with_context=bool(shipment.context)
                    )
                case messages.Returned():
                    self._access.resend_returned(source, body, now_us)
                case messages.Resumed():
                    pass  # It is empty. Only its number in the stream matters, for contexts.
                case messages.AskPast():
                    past = self._access.past_of(body)
                    if past is not None:
                        self._access.send(source, past, now_us, self._access.context())
                case messages.Past(publisher):
                    self._access.pasts.learn(publisher, source, body)
                case messages.Records() | messages.Withdraw() | messages.Closed():
                    self._consumers.receive(source, body, now_us)
                case _:
                    self._consumers.serve(source, body, now_us)
        except (CannotPublishError, StoreError):
            return False
        except ContradaError:
            self.refused += 1  # It would always fail, and hold up the shipments behind it.
        return True


def _is_notice(arrival: ArrivedShipment) -> bool:
    return isinstance(arrival[1].body, messages.Notice)

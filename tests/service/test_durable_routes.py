"""The queues of durable subscriptions beside the delivery server."""

import pytest

from contrada.delivery.durable_state import DurableState
from contrada.model import Envelope, Filter, FilterSet, Notification
from contrada.routing.router_messages import Publish
from contrada.service.dispatcher import Dispatcher
from contrada.service.durable_routes import DurableRoutes
from tests.asynchronous import on_loop


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("classes", "queued"),
    [
        (["certified", "reliable"], 0),
        (["best-effort"], 1),
        (["best-effort", "certified"], 2),  # The task drops the second one.
        (["certified", "best-effort"], 2),
    ],
)
@on_loop
async def test_a_queue_takes_no_lone_publication_of_a_higher_class(
    classes: list[str], queued: int, count: int
) -> None:
    """Each certified publication would wake a task that drops it; or one of best effort be lost."""
    dispatcher: Dispatcher = Dispatcher()
    client = dispatcher.client()
    routes = DurableRoutes(DurableState("a", None), dispatcher, client)
    names = [str(each) for each in range(count)]
    queues = [routes.subscribe(each, FilterSet((Filter("i any"),))).queue for each in names]
    published = tuple(Notification({"i": 1}, envelope=Envelope(delivery=it)) for it in classes)
    assert dispatcher.publish(client, Publish(published), 0) == []
    assert [len(each) for each in queues] == [queued] * count

"""The forwarder: makes a task of each severe alert, whatever its topic or publisher.

A record is acknowledged once its task is in Celery's queue: none is lost, and one may run twice.
"""

import asyncio
import os

import contrada as ct
from examples.celery_alerts.tasks import check

app = ct.App(os.environ.get("CONTRADA_BROKER"))


@app.subscriber("alert exists and host exists and level >= 40", durable="alert-checks")
def forward(event: ct.Notification) -> None:
    """Puts a task into the queue: on a thread, since Celery's client blocks."""
    check.delay(dict(event))


if __name__ == "__main__":
    asyncio.run(app.run())

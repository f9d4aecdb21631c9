"""Celery tasks: one runs for each alert, and publishes its result.

contrada serve --store records.db
export CONTRADA_BROKER=contrada://127.0.0.1:7655 CELERY_BROKER=redis://127.0.0.1:6379
celery --app examples.celery_alerts.tasks worker
python -m examples.celery_alerts.forwarder
contrada sub "checked exists" &
contrada pub alert="disk full" host=oslo level=50 --delivery certified
"""

import os
from typing import Any

from celery import Celery

import contrada as ct

celery = Celery("alerts", broker=os.environ.get("CELERY_BROKER", "memory://"))

# It connects at first use: after a worker has forked its processes.
service = ct.connect_sync(os.environ.get("CONTRADA_BROKER"), publisher=f"checker-{os.getpid()}")


@celery.task  # type: ignore[untyped-decorator]
def check(alert: dict[str, Any]) -> None:
    """Checks the host of an alert, and publishes the result."""
    service.publish({"checked": alert["host"], "alert": alert["alert"], "is_well": False})

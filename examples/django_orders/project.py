"""A Django project in one file: a view stores an order and publishes it; a worker handles it.

contrada serve --store records.db
export CONTRADA_BROKER=contrada://127.0.0.1:7655
export DJANGO_SETTINGS_MODULE=examples.django_orders.project
django-admin runserver --pythonpath .
python -m examples.django_orders.worker
curl -X POST http://127.0.0.1:8000/orders/DIS/100
"""

import os
import secrets
from pathlib import Path
from tempfile import gettempdir

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

import contrada as ct

# Settings
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("ORDERS", Path(gettempdir(), "orders.sqlite3")),
    }
}
DEBUG = False
ROOT_URLCONF = __name__
SECRET_KEY = secrets.token_hex()

BROKER = os.environ.get("CONTRADA_BROKER")

# It connects at first use: after a server such as gunicorn has forked its workers.
service = ct.connect_sync(BROKER, publisher=f"shop-{os.getpid()}")


def order(request: HttpRequest, symbol: str, count: int) -> JsonResponse:
    """Stores an order, and publishes it once it is committed: never one that was rolled back."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS orders (symbol TEXT, count INTEGER)")
            cursor.execute("INSERT INTO orders VALUES (%s, %s)", [symbol, count])
        event = {"order": symbol, "count": count}
        transaction.on_commit(lambda: service.publish(event, delivery="reliable"))
        if count == 0:
            raise ValueError("nothing ordered")
    return JsonResponse(event, status=201)


urlpatterns = [path("orders/<str:symbol>/<int:count>", csrf_exempt(require_POST(order)))]

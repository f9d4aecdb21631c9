"""The worker: handles large orders, with Django's database."""

import asyncio
import os

import contrada as ct

app = ct.App(os.environ.get("CONTRADA_BROKER"))


@app.subscriber("order exists and count >= 100", durable="large-orders")
def check(event: ct.Notification) -> None:
    """Counts the orders of the symbol: on a thread, as Django's database asks."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(count) FROM orders WHERE symbol = %s", [event["order"]])
        print(f"large order of {event['order']}, {cursor.fetchone()[0]} in all", flush=True)


if __name__ == "__main__":
    import django

    django.setup()
    asyncio.run(app.run())

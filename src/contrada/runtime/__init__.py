"""The embedded service, and what every asyncio access point shares.

`embedded` is the service in this process; `blocking` runs any service on a thread of its own
for code that does not await. `asking` is what a service asks of sources, `answering` what its own
are asked. `hosting` keeps promises of delivery, `standing` reads what is kept,
`stores` opens the store of that, in tables (`tables`) of `sqlite` or `postgres`. `exchange`,
`outlet`, `budget`, `stamping` and `subscription` are the parts of which the TCP broker and its
client are made too.
"""

from contrada.runtime.blocking import BlockingService
from contrada.runtime.blocking_faces import BlockingSubscription
from contrada.runtime.embedded import EmbeddedService

__all__ = ["EmbeddedService", "BlockingService", "BlockingSubscription"]

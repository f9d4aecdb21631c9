"""Documents over a service: sent, received, their generated names, and feeds that are polled.

    async with connect(address) as service:
        names = Names(service)
        await Sender(service, names).send(Renderer(Reading(strategy="daemon")).render(path))

        async with Receiver(service, "backslash.story.title any", names=names) as events:
            async for notification in events: ...

The part that makes notifications of documents (`contrada.records.Renderer`) knows no service, and
what stands here knows no XML but what feeds are: a sender takes any notifications.

Source: Erenkrantz 2001 §4.1, §6.4, §6.5.
"""

from contrada.feeds.following import WildSubscription
from contrada.feeds.names import Names
from contrada.feeds.naming import NamingService, NamingStatistics
from contrada.feeds.polling import FeedPoller, Poll
from contrada.feeds.receiving import Receiver, ReceiverStatistics
from contrada.feeds.seen import FeedStates
from contrada.feeds.sending import Sender, SenderStatistics

__all__ = [
    "FeedPoller",
    "FeedStates",
    "Names",
    "NamingService",
    "NamingStatistics",
    "Poll",
    "Receiver",
    "ReceiverStatistics",
    "Sender",
    "SenderStatistics",
    "WildSubscription",
]

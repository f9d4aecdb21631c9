"""Documents over a service: sender, receiver, naming service, and the polling of feeds.

`contrada.integrations.files.Renderer` makes notifications of documents and knows no service. This
package knows no XML except feeds: a sender takes any notifications. See docs/feeds.md.

Source: Erenkrantz 2001 §4.1, §6.4, §6.5.
"""

from contrada.integrations.feeds.document_receiver import Receiver, ReceiverStatistics
from contrada.integrations.feeds.document_sender import Sender, SenderStatistics
from contrada.integrations.feeds.feed_limits import FeedLimits
from contrada.integrations.feeds.feed_poller import FeedPoller, Poll
from contrada.integrations.feeds.feed_states import FeedStates
from contrada.integrations.feeds.name_client import Names
from contrada.integrations.feeds.naming_service import NamingService, NamingStatistics
from contrada.integrations.feeds.wild_subscription import WildSubscription

__all__ = [
    "FeedLimits",
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

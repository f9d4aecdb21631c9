"""The interface of a publish/subscribe service, the same for the embedded one and a network.

Only the interface: this room creates no task, socket or clock. `interface` says what a service
and a subscription offer; `requests` turns what a caller hands over into notifications and
filters, so that every service admits and refuses the same things with the same words.
"""

from contrada.service.advertisements import Advertisements, OfferChange, Offering
from contrada.service.interface import (
    ConnectionState,
    Disseminates,
    DurableSubscription,
    Service,
    ServiceStatistics,
    Subscription,
    SubscriptionStatistics,
)
from contrada.service.query_interface import (
    Answers,
    Computed,
    Description,
    SourceLike,
    SourceOffer,
)
from contrada.service.requests import (
    dissemination_of,
    filters_of,
    is_predicate,
    is_promised,
    match_reader_of,
    narrowing_of,
    notification_of,
    offer_of,
    pattern_of,
    promised,
    publication_of,
    reader_of,
    reading_of,
    residue_of,
    transmitted,
)
from contrada.service.subjects import (
    EnvelopePredicate,
    Interest,
    Item,
    MatchInterest,
    Offered,
    Predicate,
    Subscribable,
)
from contrada.service.subscription_options import (
    DurableOptions,
    DurableRecord,
    QueueOptions,
    WhenFull,
)

__all__ = [
    "Service",
    "Subscription",
    "DurableSubscription",
    "DurableOptions",
    "QueueOptions",
    "WhenFull",
    "DurableRecord",
    "ServiceStatistics",
    "SubscriptionStatistics",
    "ConnectionState",
    "Advertisements",
    "Answers",
    "SourceLike",
    "Computed",
    "Description",
    "SourceOffer",
    "Disseminates",
    "EnvelopePredicate",
    "Interest",
    "Item",
    "MatchInterest",
    "OfferChange",
    "Offered",
    "Offering",
    "Predicate",
    "Subscribable",
    "dissemination_of",
    "filters_of",
    "is_predicate",
    "is_promised",
    "match_reader_of",
    "narrowing_of",
    "notification_of",
    "offer_of",
    "pattern_of",
    "promised",
    "publication_of",
    "reader_of",
    "reading_of",
    "residue_of",
    "transmitted",
]

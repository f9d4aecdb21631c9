"""Services: the interface, the same for an embedded service and a broker, and the embedded one.

`interface` has the methods of services and subscriptions; `requests` converts the arguments of
callers into notifications and filters, so that every service accepts and refuses the same things.
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
from contrada.service.query_interface import Answers, Computed, Description, SourceLike, SourceOffer
from contrada.service.requests import (
    dissemination_of,
    filters_of,
    is_above_best_effort,
    is_predicate,
    match_reader_of,
    narrowing_of,
    notification_of,
    offer_of,
    pattern_of,
    publication_of,
    reader_of,
    reading_of,
    residue_of,
    with_delivery,
    with_transmission,
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
    "is_above_best_effort",
    "match_reader_of",
    "narrowing_of",
    "notification_of",
    "offer_of",
    "pattern_of",
    "with_delivery",
    "publication_of",
    "reader_of",
    "reading_of",
    "residue_of",
    "with_transmission",
]

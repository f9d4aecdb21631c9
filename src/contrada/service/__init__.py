"""Services: the interface, the same for an embedded service and a broker, and the embedded one.

`interface` has the methods of services and subscriptions; `requests` converts the arguments of
callers into notifications and filters, so that every service accepts and refuses the same things.
"""

from functools import partial

from contrada.renamed_modules import former_name
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
    Advertisements,
    Answers,
    Computed,
    Description,
    OfferChange,
    Offering,
    SourceLike,
    SourceOffer,
)
from contrada.service.requests import (
    dissemination_of,
    filters_of,
    is_above_best_effort,
    narrowing_of,
    notification_of,
    offer_of,
    publication_of,
    reader_of,
    reading_of,
    residue_of,
    with_delivery,
    with_transmission,
)
from contrada.service.subjects import (
    DurableOptions,
    DurableRecord,
    EnvelopePredicate,
    Interest,
    Item,
    MatchInterest,
    Offered,
    Predicate,
    QueueOptions,
    Subscribable,
    WhenFull,
)

__all__ = ["Service", "ServiceStatistics", "ConnectionState", "Item", "Disseminates"]
__all__ += ["Subscription", "SubscriptionStatistics", "QueueOptions", "WhenFull"]
__all__ += ["DurableSubscription", "DurableOptions", "DurableRecord"]
__all__ += ["Subscribable", "Interest", "MatchInterest", "Predicate", "EnvelopePredicate"]
__all__ += ["Advertisements", "OfferChange", "Offered", "Offering"]
__all__ += ["Answers", "Computed", "Description", "SourceLike", "SourceOffer"]
# Conversions of requests
__all__ += ["dissemination_of", "filters_of", "is_above_best_effort", "narrowing_of"]
__all__ += ["notification_of", "offer_of", "publication_of", "reader_of", "reading_of"]
__all__ += ["residue_of", "with_delivery", "with_transmission"]

__getattr__ = partial(former_name, __name__)

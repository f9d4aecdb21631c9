"""CloudEvents 1.0: events to notifications and back, subscriptions' filters to filters and back."""

from contrada.dialects.cloudevents.events import event_of, notification, with_data
from contrada.dialects.cloudevents.subscriptions import filters, read, read_rules
from contrada.dialects.cloudevents.writing import filters_of

__all__ = ["event_of", "filters", "filters_of", "notification", "read", "read_rules", "with_data"]

"""Google Cloud Pub/Sub: filters of subscriptions."""

from contrada.integrations.dialects.pubsub.message_filters import filters, read, read_rules

__all__ = ["filters", "read", "read_rules"]

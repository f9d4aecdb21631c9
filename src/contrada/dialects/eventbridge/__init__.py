"""AWS EventBridge: event patterns to filters and back, events to notifications and back."""

from contrada.dialects.eventbridge.events import event_of, notifications
from contrada.dialects.eventbridge.patterns import filters, matches, read, read_rules
from contrada.dialects.eventbridge.writing import pattern_of

__all__ = ["event_of", "filters", "matches", "notifications", "pattern_of", "read", "read_rules"]

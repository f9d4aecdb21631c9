"""CloudEvents 1.0: conversion of events and notifications, and of subscriptions' filters."""

from contrada.integrations.dialects.cloudevents.cloudevent_json import (
    event_of,
    notification,
    with_data,
)
from contrada.integrations.dialects.cloudevents.subscription_filters import (
    filters,
    filters_of,
    read,
    read_rules,
)

__all__ = ["event_of", "filters", "filters_of", "notification", "read", "read_rules", "with_data"]

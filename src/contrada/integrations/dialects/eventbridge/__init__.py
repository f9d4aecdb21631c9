"""AWS EventBridge: conversion of event patterns and filters, and of events and notifications."""

from contrada.integrations.dialects.eventbridge.event_patterns import (
    filters,
    matches,
    read,
    read_rules,
)
from contrada.integrations.dialects.eventbridge.eventbridge_events import event_of, notifications
from contrada.integrations.dialects.eventbridge.eventbridge_writer import pattern_of

__all__ = ["event_of", "filters", "matches", "notifications", "pattern_of", "read", "read_rules"]

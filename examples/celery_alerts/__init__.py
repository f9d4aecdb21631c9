"""Celery tasks for events that match a filter, and events from a task."""

"""Tests; they mirror the source, room by room."""

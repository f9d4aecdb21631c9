"""Contrada: content-based, type-based and sequence-aware publish/subscribe."""

"""Obvents: objects of application-defined types as events."""

from contrada.typed.obvent import Obvent, type_name_of

__all__ = ["Obvent", "type_name_of"]

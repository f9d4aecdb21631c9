"""Permissions and signatures: values and decisions, without sockets or clocks."""

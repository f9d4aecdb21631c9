"""RabbitMQ: arguments of bindings to headers exchanges."""

from contrada.integrations.dialects.rabbitmq.header_bindings import filters, read, read_rules

__all__ = ["filters", "read", "read_rules"]

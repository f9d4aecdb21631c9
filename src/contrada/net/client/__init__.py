"""Client of a broker: the service over one connection, with reconnection and durable requests."""

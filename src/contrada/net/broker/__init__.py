"""The broker: connections, client sessions, links to neighbours, users and durable traffic."""

"""Integrations: other filter languages, file formats, documents, feeds, HTTP, MQTT and Spark."""

"""Stores of durable records: SQLite, PostgreSQL, and copies of either."""

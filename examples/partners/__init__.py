"""The partners example: users with filters as permissions, over HTTP, and signed notices."""

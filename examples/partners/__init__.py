"""The partners example: users of a broker who read only what is theirs, over HTTP and signed."""

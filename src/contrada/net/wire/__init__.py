"""Wire protocol: frames, messages and payloads, and the connections that carry them."""

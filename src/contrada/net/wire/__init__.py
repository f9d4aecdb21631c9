"""The wire protocol: frames, messages, payloads, and the connections that carry them."""

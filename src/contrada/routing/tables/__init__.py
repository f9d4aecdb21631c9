"""The subscription table and the advertisement table: their entries, and which are forwarded."""

"""What a broker offers over HTTP."""

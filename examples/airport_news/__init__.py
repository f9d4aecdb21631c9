"""The airport news example: a polled feed, and desks that know its generated names."""

"""The airport news example: a feed that is polled, and desks that know the names it repeats."""

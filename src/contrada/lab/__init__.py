"""Laboratory: simulated networks in virtual time, calculation of gossip, and figures."""

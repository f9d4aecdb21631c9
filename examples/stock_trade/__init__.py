"""The stock trade example: a market, brokers and a bank that know one another by events alone."""

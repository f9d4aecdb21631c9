"""The stock trade example: a market, brokers and a bank that communicate by events alone."""

"""Site-Select: commands and questions to the airports that have certain traits, by bit sets."""

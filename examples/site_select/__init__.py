"""Site-Select: commands and questions to the airports with certain traits, by bit sets."""

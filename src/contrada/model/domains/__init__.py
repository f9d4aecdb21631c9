"""Values of seven domains with their keys (`values`), and sets of keys on one line (`line`)."""

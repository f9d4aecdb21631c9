"""Programs that show the system; each is run by a test."""

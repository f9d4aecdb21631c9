"""The text syntax: its grammar, how it is read, how it is printed."""

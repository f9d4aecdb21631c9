"""The console: pages of a broker's HTTP port, for people. See docs/console.md."""

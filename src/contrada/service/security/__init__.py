"""Who may do what, and who said what: values and decisions, without sockets or clocks."""

"""Who may do what, decided by filters; and signatures of notifications."""

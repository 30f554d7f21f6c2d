"""What of the log may be let go of, and letting go of it (DESIGN §6)."""

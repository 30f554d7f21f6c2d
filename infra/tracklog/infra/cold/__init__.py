"""The cold tier: every event once, in a Delta Lake table (DESIGN §7)."""

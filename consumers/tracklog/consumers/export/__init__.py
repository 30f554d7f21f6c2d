"""The exporter: a partition owner that writes every event once into the cold tier (DESIGN §7)."""

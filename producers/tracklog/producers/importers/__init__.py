"""Recorded runs become trajectories: `read_runs` reads, `plan` makes events, `import_runs` writes them once."""

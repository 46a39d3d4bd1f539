"""The worker: its start, run and end, its settings, health, metrics and log."""

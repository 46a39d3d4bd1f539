"""Panes, watermarks, contribution bounding, bucketed counts and replay guards: pure functions on plain data."""

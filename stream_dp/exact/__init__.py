"""Exact arithmetic under every draw: uniform bits, enclosures of real numbers, exact choices. Integers only."""

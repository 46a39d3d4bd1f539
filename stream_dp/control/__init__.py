"""Grants, unlocks and settings that operators may ask for, as data and as pure functions on a plan."""

"""Lossless multiple release: one noise path per count, read at any level; a set of releases costs its finest."""

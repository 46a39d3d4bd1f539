"""The noise families."""

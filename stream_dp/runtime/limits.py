"""Limits of the process that the system sets."""

from __future__ import annotations

import resource


def open_more_files() -> None:
    """Let the process open as many files as the system lets it: databases, connections and scratch files add up."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

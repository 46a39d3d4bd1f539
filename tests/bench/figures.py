"""How the benchmarks of single mechanisms print what they measured."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rich.console import Console
from rich.table import Table


def show(figures: Sequence[Any], table: Table, libraries: Sequence[str], *, as_json: bool) -> None:
    """Print the table and the versions of the libraries, or everything in one line of JSON, with the machine's load."""
    versions = {name: _version(name) for name in libraries}
    if as_json:
        rows = [asdict(figure) for figure in figures]
        print(json.dumps({"versions": versions, "load": os.getloadavg(), "figures": rows}))
        return
    console = Console()
    console.print(table)
    console.print(", ".join(f"{name} {found}" for name, found in versions.items()))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"

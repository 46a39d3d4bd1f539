"""What the page for operators says of metrics."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
METRICS: dict[str, tuple[str, ...]] = {
    name: tuple(labels.split(",")) if labels else ()
    for name, labels in re.findall(r"^\| `(stream_dp_\w+)(?:\{([\w,]+)\})?` \| .+ \|$", PAGE, re.MULTILINE)
}
"""Labels by name."""

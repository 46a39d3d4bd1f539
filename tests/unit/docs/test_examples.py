"""The programs in the documents run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[3] / "docs"


def test_the_program_in_lossless_md_does_what_it_says() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (DOCS / "lossless.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)

    assert names["release"].paths.keys() == names["counts"].keys()
    assert [len(path) for path in names["release"].paths.values()] == [3, 3]
    assert names["coarse"] == names["release"].release(names["tenth"], None)
    assert names["again"].paths == names["window"].paths
    assert abs(names["last_ten"][b"ORD"] - 1630) < 200
    assert names["least"] == 28

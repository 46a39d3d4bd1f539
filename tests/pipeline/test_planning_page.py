"""The page "Planning with past events" does what it says: its commands are run, in its order, without a broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PAGE = (CHECKOUT / "docs" / "planning.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    """What is fenced in the page, of one kind of fence."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [inside for fence, inside in fenced if fence == kind]


def test_every_command_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    """The median number of keys depends on the noise."""
    (text,), (make, plan, ask, init, split, replay) = blocks("yaml"), blocks("sh")
    planned, asked, offered, divided, replayed = blocks("")
    (tmp_path / "shop.yaml").write_text(text, encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if key != "STREAM_DP_BROKER"}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}

    def run(command: str) -> list[str]:
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=tmp_path, env=environment, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [line.rstrip() for line in done.stdout.splitlines()]

    assert run(make) == []
    assert run(plan) == planned.splitlines()
    assert run(ask) == asked.splitlines()
    assert " ".join(offered.splitlines()) in run(init)
    assert run(split) == divided.splitlines()
    for line in ("epsilon: 2}", "items_per_user: 5  # a guess", 'size: "2w"'):
        assert line in (tmp_path / "new.yaml").read_text(encoding="utf-8")
    found = [re.sub(r" +[\d.]+  epsilon", " KEYS  epsilon", line) for line in run(replay)]
    assert found == [re.sub(r" +[\d.]+  epsilon", " KEYS  epsilon", line) for line in replayed.splitlines()]
    assert len((tmp_path / "trial" / "products.public.jsonl").read_text(encoding="utf-8").splitlines()) == 3

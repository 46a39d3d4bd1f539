"""A small application, and records as its topics would have them."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from stream_dp.accounting import Cost
from stream_dp.cli import main
from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.exact.bits import KeyedBits
from stream_dp.histograms.compact import Compact
from stream_dp.histograms.counting_queries import Base, GeometricTable
from stream_dp.records.by_kind import LookupRelease
from stream_dp.records.models import Refusal, Release
from stream_dp.releases.publication import Denial, Revision, account
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.client import connect
from tests.support.sealing import fields_of

VISITS = """\
name: visits
broker: memory://
data_dir: ./state
key_file: ./visits.key
sources:
  visits: {topic: visits, partitions: 2}
ledgers:
  visitors: {population: visitors of the site, epsilon: "30", delta: "1/1000", period: 10d}
ladders:
  pages:
    - {level: coarse, epsilon: "1/3"}
    - {level: fine, epsilon: "1"}
    - {level: finest, epsilon: "2"}
  searches:
    - {level: coarse, epsilon: "1/10"}
    - {level: fine, epsilon: "1/5"}
audiences: {public: coarse, staff: fine}
views:
  pages:
    {source: visits, item: page, kind: histogram, items_per_user: 1, delta: "1e-6", window: {size: 1d},
     ledger: visitors, ladder: pages}
  searches:
    {source: visits, item: query, kind: topk, k: 3, kbar: 5, selection: {epsilon: "1/10", delta: "1e-7"},
     items_per_user: 1, window: {size: 1d}, ledger: visitors, ladder: searches}
"""
DAY_MS = 86_400_000


@pytest.fixture
def visits_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration file of the application."""
    monkeypatch.delenv("STREAM_DP_BROKER", raising=False)
    file = tmp_path / "visits.yaml"
    file.write_text(VISITS, encoding="utf-8")
    return file


@cache
def _planned() -> Plan:
    with TemporaryDirectory() as folder:
        file = Path(folder, "visits.yaml")
        file.write_text(VISITS, encoding="utf-8")
        return load_plan(file, {})


@pytest.fixture
def visits(visits_file: Path) -> Plan:
    """Its plan. It is made once: that takes longer than most tests that use it."""
    made, folder = _planned(), visits_file.parent
    return replace(
        made,
        folder=folder,
        data_dir=folder / made.data_dir.relative_to(made.folder),
        key_file=folder / made.key_file.relative_to(made.folder),
        raw=deepcopy(made.raw),
    )


@pytest.fixture
def release(visits: Plan) -> Callable[..., Release]:
    """Makes a release of a day."""

    def make(
        items: Mapping[str, int],
        *,
        view: str = "pages",
        audience: str = "public",
        level: int = 0,
        day: int = 0,
        revision: int = 1,
        period_loss: Cost | None = None,
        complete: bool = True,
    ) -> Release:
        planned = visits.views[view]
        return Revision(
            planned,
            audience=audience,
            level=level,
            start_ms=day * DAY_MS,
            number=revision,
            period_loss=planned.cost(level) if period_loss is None else period_loss,
            ledger=account(planned.ledger, 0),
        ).release(fields=fields_of(planned, level, items.items(), complete=complete), window_loss=planned.cost(level))

    return make


@pytest.fixture
def refusal(visits: Plan) -> Callable[..., Refusal]:
    """Makes a refusal of a day of the pages."""

    def make(*, audience: str = "public", level: int = 1, day: int = 0, revision: int = 1) -> Refusal:
        view = visits.views["pages"]
        return Revision(
            view,
            audience=audience,
            level=level,
            start_ms=day * DAY_MS,
            number=revision,
            period_loss=Cost.ZERO,
            ledger=account(view.ledger, 0),
        ).refusal(Denial(view.cost(level)) if revision == 1 else Denial.for_now(view.cost(level), level - 1))

    return make


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Call = Callable[..., Said]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Calls the console script with arguments, as a shell does."""

    def run(*words: str | Path) -> Said:
        monkeypatch.setattr(sys, "argv", ["stream-dp", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "200")
        code: object = 0
        try:
            main()
        except SystemExit as stopped:
            code = stopped.code
        said = capsys.readouterr()
        assert isinstance(code, int | None)
        return Said(code or 0, said.out, said.err)

    return run


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    """An embedded log that the commands reach, which no other process could."""
    shared = MemoryLog()
    monkeypatch.setattr("stream_dp.cli.command_line.connect", partial(connect, embedded=MemoryClient(shared)))
    return shared


def lookup_table_of(base: Release) -> LookupRelease:
    """A release of a lookup view, with noise that is nearly always 0."""
    query = GeometricTable(8, Base.within(Fraction(20)), 64)
    drawn = Compact(query, 40, 8, 1).draw({"home": 30, "faq": 5}, KeyedBits(bytes(32), b"")).to_bytes()
    common = {name: getattr(base, name) for name in Release.model_fields if name not in ("items", "part")}
    return LookupRelease(**{**common, "kind": "lookup"}, items=(), table=b64encode(drawn).decode(), absent_mean="0.1")

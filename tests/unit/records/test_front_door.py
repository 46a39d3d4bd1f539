"""What programs that read records import from `stream_dp.records`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from stream_dp import records
from stream_dp.records.codec import encode
from stream_dp.records.models import Release


def test_a_reader_parses_records_and_keeps_the_newest_release_of_every_window(release: Callable[..., Release]) -> None:
    history = records.History()
    for record in (release({"/a": 3}), release({"/a": 5}, level=1, revision=2), release({"/a": 3})):
        history.take(records.parse(encode(record)))

    ((_, seen),) = history.windows("pages", "public").items()
    assert seen.release == release({"/a": 5}, level=1, revision=2)
    assert seen.before == release({"/a": 3})
    assert isinstance(seen.release, records.Release)


@pytest.mark.parametrize("name", records.__all__)
def test_every_name_is_there_whatever_is_imported_first(name: str) -> None:
    program = f"from stream_dp.records import {name}; import stream_dp.kinds"

    assert getattr(records, name).__doc__
    if name == "parse":
        subprocess.run([sys.executable, "-c", program], check=True)

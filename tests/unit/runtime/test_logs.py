"""The log of a worker in its two forms, and what is kept out of it."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys

import pytest

from stream_dp.runtime.worker.logs import FORMATS, JsonLines, last_line

SPEAKS = """
import logging, sys, warnings
from stream_dp.runtime.worker.logs import last_line, speak

speak({form!r}, verbose={verbose})
logging.getLogger("stream_dp.worker").info("view %s\\nis behind", "päges")
logging.getLogger("stream_dp.control").warning("no such level")
for name in ("aiohttp.server", "aiokafka.conn", "faust.app", "mode", "stream_dp.runtime.faust.app"):
    logging.getLogger(name).error("noise of %s", name)
warnings.warn("noise of a warning")
print(last_line("error: the disk is full"), file=sys.stderr)
{end}
"""


def said(form: str, *, verbose: bool = False, end: str = "") -> list[str]:
    """The lines that a process says."""
    code = SPEAKS.format(form=form, verbose=verbose, end=end)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=not end)
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_every_line_of_the_json_form_is_an_object_also_the_last_one_and_that_of_an_error_nobody_expected() -> None:
    end = "secret = 'zel' + 'da'; raise ValueError('of nobody')"  # from Python 3.13 on, a traceback quotes this line
    *lines, last = map(json.loads, said("json", end=end))
    assert [(line["level"], line["logger"], line["message"]) for line in lines] == [
        ("INFO", "stream_dp.worker", "view päges\nis behind"),
        ("WARNING", "stream_dp.control", "no such level"),
        ("ERROR", "stream_dp.worker", "the disk is full"),
    ]
    for line in lines:
        assert line.keys() == {"time", "level", "logger", "message"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert last["level"] == "CRITICAL"
    assert last["exception"].endswith("ValueError: of nobody")
    assert "zelda" not in last["exception"], "no values of variables"


def test_the_text_form_says_the_same_and_the_last_line_as_it_is() -> None:
    first, rest, second, last = said("text")
    assert re.fullmatch(r"[-\d]+ [:,\d]+ INFO stream_dp\.worker: view päges", first)
    assert rest == "is behind"
    assert second.endswith(" WARNING stream_dp.control: no such level")
    assert last == "error: the disk is full"


def test_libraries_are_heard_if_that_is_asked_for() -> None:
    lines = [json.loads(line)["message"] for line in said("json", verbose=True)]
    assert sum("noise of" in line for line in lines) == 6


def test_time_is_that_of_the_record_in_utc() -> None:
    record = logging.LogRecord("stream_dp.worker", logging.INFO, "", 0, "said", None, None)
    record.created = 1_700_000_000.5
    assert json.loads(JsonLines().format(record))["time"] == "2023-11-14T22:13:20.500Z"


def test_the_last_line_has_the_form_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = logging.StreamHandler()
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    handler.setFormatter(FORMATS["text"])
    assert last_line("it ends") == "it ends"
    handler.setFormatter(FORMATS["json"])
    assert json.loads(last_line("it ends", logging.INFO))["level"] == "INFO"

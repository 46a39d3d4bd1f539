"""The files of the pages: how much a browser loads for each, compressed, and what it is told when it asks again."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from stream_dp.config.plan import Plan
from stream_dp.gateway.console import Console
from stream_dp.gateway.tokens import Tokens
from stream_dp.gateway.web import KEPT_TO, STATIC
from tests.support.gateway import NOW, ask, gateway_of

LARGEST_PAGE = 120 << 10
"""Bytes over the wire, all files of a page together."""
LINK = re.compile(r"(?:href|src)=\"([^#\"]+\.(?:css|js))\"|(?:from|import) '([^']+)'")
Apps = dict[str, Any]


@pytest.fixture
def apps(tmp_path: Path, visits: Plan) -> Apps:
    """The two programs, by their page."""
    console = Console(visits, lambda: pytest.fail("Kafka is asked"), Tokens(None, lambda: NOW))
    return {"index.html": gateway_of(tmp_path, {}).app(), "console.html": console.app()}


@pytest.mark.parametrize("page", ["index.html", "console.html"])
async def test_what_a_page_loads_is_compressed_and_small(apps: Apps, page: str) -> None:
    loaded: dict[str, bytes] = {}
    waiting, size = ["/"], 0
    while waiting:
        path = waiting.pop()
        answer = await ask(apps[page], path, accept_encoding="gzip, br")
        assert (answer.status, answer.headers["vary"]) == (200, "Accept, Accept-Encoding")
        size += len(answer.body) + sum(len(name) + len(value) + 4 for name, value in answer.headers.items())
        loaded[path] = gzip.decompress(answer.body) if "content-encoding" in answer.headers else answer.body
        found = {urljoin(path, a or b) for a, b in LINK.findall(loaded[path].decode())}
        waiting += found - loaded.keys() - {*waiting}
    script = {"index.html": "/app.js", "console.html": "/console.js"}[page]
    assert {"/vendor/uPlot.esm.js", "/reader.css", script} <= loaded.keys()
    assert loaded.pop("/") == (STATIC / page).read_bytes()
    assert loaded == {path: (STATIC / path[1:]).read_bytes() for path in loaded}
    assert max(map(len, loaded.values())) <= KEPT_TO  # each is compressed once
    assert sum(map(len, loaded.values())) > LARGEST_PAGE > size


async def test_a_file_that_has_not_changed_is_304_and_caches_ask_each_time(apps: Apps) -> None:
    app, tags = apps["index.html"], set()
    for encoding in ("gzip", "identity"):
        answer = await ask(app, "/app.js", accept_encoding=encoding)
        assert answer.headers["content-type"] in ("text/javascript; charset=utf-8", "application/javascript")
        assert answer.headers["cache-control"] == "no-cache"
        again = await ask(app, "/app.js", accept_encoding=encoding, if_none_match=answer.headers["etag"])
        assert (again.status, again.body) == (304, b"")
        tags.add(answer.headers["etag"])
    assert len(tags) == 2
    assert (await ask(app, "/model.js", if_none_match=tags.pop())).status == 200


@pytest.mark.parametrize("path", ["/../web.py", "/%2e%2e/web.py", "/vendor", "/vendor/", "/static/app.js", "/App.js"])
async def test_only_files_of_the_pages_are_there(apps: Apps, path: str) -> None:
    for app in apps.values():
        answer, other = await ask(app, path), await ask(app, "/nothing")
        assert (answer.status, answer.body) == (other.status, other.body) == (404, other.body)


async def test_a_page_can_only_be_read(apps: Apps) -> None:
    for app in apps.values():
        assert (await ask(app, "/", "POST")).status == (await ask(app, "/app.js", "DELETE")).status == 405
        assert (await ask(app, "/", "HEAD")).status == 200

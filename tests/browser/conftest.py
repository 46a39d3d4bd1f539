"""Chromium for the tests of pages, and what every page is held to."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
PATIENCE_MS = 12_000
"""A page that a loaded machine draws for the first time may take half of this."""
Page = Any


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS.split())
        yield chromium
        chromium.close()


@pytest.fixture
def empty_page(browser: Any) -> Iterator[Callable[..., Page]]:
    """Open an empty page; at the end nothing was blocked on any and nothing has failed."""
    pages, faults = [], []

    def opened(**options: Any) -> Page:
        page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if _is_fault(message.text) else None)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert not faults


def _is_fault(text: str) -> bool:
    return "Content Security" in text or "violates" in text

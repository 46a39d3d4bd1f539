"""What every page is held to: accessibility, keys, narrow screens, large text, and no count without its interval."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import pytest

Page = Any
TEXTS = """() => [...document.querySelectorAll('*')].flatMap(e => [...e.attributes]
  .filter(a => !['style', 'x', 'x1', 'x2', 'cx', 'cy', 'r', 'viewBox'].includes(a.name))
  .map(a => a.name + ' ' + a.value)
  .concat([...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data)))"""
NUMBER = re.compile(r"(?<![\d,.])-?\d{1,3}(?:,\d{3})+(?![\d,])|(?<![\d,.])-?\d+(?![\d,])")
INTERVAL = re.compile(r"\d to \d|at most \d")
CONTROLS = "a[href], button:not([disabled]), input, select, textarea, summary, [tabindex='0']"


def bare(page: Page, counts: Collection[int]) -> list[str]:
    """Return the texts and attributes that have a released count and no interval."""
    found = page.evaluate(TEXTS)
    return [
        text
        for text in found
        if any(int(number.replace(",", "")) in counts for number in NUMBER.findall(text)) and not INTERVAL.search(text)
    ]


def faults(page: Page) -> list[str]:
    """Return what axe finds on a page as it is, each with where.

    All of its rules: those of WCAG 2.2 AA, with the size of targets, which is off by default, and good practice.
    """
    base = pytest.importorskip("axe_playwright_python.base", reason="axe-playwright-python is not installed")
    page.evaluate(base.AXE_SCRIPT)
    options = {"preload": False, "resultTypes": ["violations"], "rules": {"target-size": {"enabled": True}}}
    found = page.evaluate("options => axe.run(document, options)", options)["violations"]
    return [
        f"{one['id']} ({one['impact']}): {node['html'][:120]} {[why['message'] for why in node['any'] + node['all']]}"
        for one in found
        for node in one["nodes"]
    ]


def too_wide(page: Page) -> list[str]:
    """Return what makes a page scroll sideways."""
    return page.evaluate(  # type: ignore[no-any-return]
        """() => document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll('body *')]
             .filter(e => e.getBoundingClientRect().right > innerWidth && !e.closest('.strip, .side ul, .scroll'))
             .map(e => e.outerHTML.slice(0, 120))"""
    )


def cut_off(page: Page) -> list[str]:
    """Return the elements whose text does not fit into them and cannot be scrolled to."""
    return page.evaluate(  # type: ignore[no-any-return]
        """() => [...document.querySelectorAll('body *')].filter(e => {
             const how = getComputedStyle(e);
             const hides = [how.overflowX, how.overflowY].some(o => o === 'hidden' || o === 'clip');
             return e.innerText?.trim() && !e.closest('.sr') && hides
               && (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1);
           }).map(e => e.outerHTML.slice(0, 120))"""
    )


def unreached(page: Page, among: str = "body") -> list[str]:
    """Return the visible controls in an element that no number of Tabs gets to, or that do not show their focus.

    Of windows in a strip, one can be reached; from it the arrow keys go on.
    """
    seen = """() => {
      const e = document.activeElement, key = e.id || e, first = !window.reached.has(key);
      if (getComputedStyle(e).outlineStyle !== 'none' || e === document.body) window.reached.add(key);
      return first && e !== document.body;
    }"""
    page.evaluate("() => { window.reached = new Set(); }")
    for _ in range(3):  # from where the visitor is to the end; all; and what was reached already
        page.keyboard.press("Tab")
        while page.evaluate(seen):
            page.keyboard.press("Tab")
    return page.evaluate(  # type: ignore[no-any-return]
        """([among, controls]) => [...document.querySelector(among).querySelectorAll(controls)]
             .filter(e => e.checkVisibility() && e.tabIndex >= 0 && !window.reached.has(e.id || e))
             .map(e => e.outerHTML.slice(0, 120))""",
        [among, CONTROLS],
    )

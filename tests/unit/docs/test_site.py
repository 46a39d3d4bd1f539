"""The documentation site builds without warnings, asks no other host, and shows what the repository's browser shows."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("mkdocs", reason="mkdocs is not installed")
markdown_it = pytest.importorskip("markdown_it", reason="it is the repository's browser here")

CHECKOUT = Path(__file__).parents[3]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SITE = runpy.run_path(str(CHECKOUT / "docs" / "site.py"))
BESIDE: dict[str, str] = SITE["PAGES"]
DOCUMENTS = [*sorted(file.relative_to(CHECKOUT).as_posix() for file in (CHECKOUT / "docs").rglob("*.md")), *BESIDE]
COUNTED = {"a", "blockquote", "code", "em", "h2", "h3", "img", "li", "pre", "strong", "table", "tr"}


def page_of(document: str) -> str:
    page = BESIDE.get(document, document.removeprefix("docs/"))
    return re.sub(r"README\.md$", "index.md", page).removesuffix(".md") + ".html"


class Elements(HTMLParser):
    """Counts elements of the text, and lists what a page loads from other hosts."""

    def __init__(self, text: str, *, is_page: bool) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.loaded: list[str] = []
        self._inside = not is_page
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._inside |= tag == "article"
        self.found[tag] += self._inside and tag in COUNTED and "headerlink" not in given.get("class", "")
        if tag != "a":
            self.loaded += [link for link in (given.get("src"), given.get("href")) if link and "//" in link]

    def handle_endtag(self, tag: str) -> None:
        self._inside &= tag != "article"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=CHECKOUT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = {page.relative_to(site).as_posix(): page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    styles = [sheet.read_text(encoding="utf-8") for sheet in site.rglob("*.css")]

    assert page_of("docs/README.md") in pages
    assert {name: loaded for name, text in pages.items() if (loaded := Elements(text, is_page=True).loaded)} == {}
    assert [sheet for sheet in styles if re.search(r"(?:url\(|@import\s*)[\"']?(?:https?:)?//", sheet)] == []
    assert 'class="mermaid"' not in "".join(pages.values()), "its program would come from another host"


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_search_finds_a_page_and_the_browser_asks_no_other_host(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    asked: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, playwright.sync_playwright() as driver:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{server.server_address[1]}/"
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{here}index.html")
        page.locator(".md-search__input").fill('"two customer numbers"')
        page.locator(".md-search-result__link[href*='promise.html']").first.wait_for(timeout=60000)
        chromium.close()
        server.shutdown()

    assert any(url.endswith("search_index.json") for url in asked)
    assert [url for url in asked if not url.startswith((here, "data:"))] == []


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_page_has_the_lists_tables_and_marks_of_its_document(site: Path, document: str) -> None:
    """Site and repository read Markdown differently: lists without an empty line before them, asterisks in formulas."""
    here = SimpleNamespace(file=SimpleNamespace(src_uri=BESIDE.get(document, document.removeprefix("docs/"))))
    text = SITE["on_page_markdown"]((CHECKOUT / document).read_text(encoding="utf-8"), here)
    meant = Elements(markdown_it.MarkdownIt("commonmark").enable("table").render(text), is_page=False)
    page = Elements((site / page_of(document)).read_text(encoding="utf-8"), is_page=True)

    assert page.found == meant.found


@pytest.mark.parametrize(
    ("page", "link", "leads_to"),
    [
        ("operating.md", "../deploy/README.md#history", "deploying.md#history"),
        ("operating.md", "kinds.md#gap", "kinds.md#gap"),
        ("specs/gap.md", "../../CONTRIBUTING.md", "../contributing.md"),
        ("specs/README.md", "../lossless.md", "../lossless.md"),
        ("deploying.md", "../docs/operating.md#keys", "operating.md#keys"),
        ("deploying.md", "#history", "#history"),
        ("deploying.md", "https://kafka.apache.org/x.md", "https://kafka.apache.org/x.md"),
        ("contributing.md", "docs/specs/README.md", "specs/README.md"),
        ("contributing.md", "SECURITY.md", "security.md"),
    ],
)
def test_a_link_across_the_border_of_the_folder_leads_to_a_page(page: str, link: str, leads_to: str) -> None:
    rewritten: Callable[..., str] = SITE["on_page_markdown"]
    here = SimpleNamespace(file=SimpleNamespace(src_uri=page))

    assert rewritten(f"see [it]({link}).", page=here) == f"see [it]({leads_to})."


def test_a_link_with_the_name_of_a_file_gets_the_title_of_its_page() -> None:
    rewritten: Callable[..., str] = SITE["on_page_markdown"]
    here = SimpleNamespace(file=SimpleNamespace(src_uri="operating.md"))
    text = "see [deploy/README.md](../deploy/README.md#history), [kinds.md](kinds.md) and `kinds.md`"

    assert rewritten(text, page=here) == (
        "see [Put it on your cluster](deploying.md#history), [Release kinds](kinds.md) and `kinds.md`"
    )

"""Hook of the documentation site: documents outside `docs` are pages too, and links lead to pages."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

CHECKOUT = Path(__file__).parents[1]
PAGES = {
    "deploy/README.md": "deploying.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Documents outside `docs`, by their place in the repository, and the name of the page of each."""
DOCUMENTS = {page: document for document, page in PAGES.items()}
LINK = re.compile(r"\[([^\[\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")


@cache
def title(document: str) -> str:
    """Return the heading of a document."""
    with (CHECKOUT / document).open(encoding="utf-8") as file:
        return file.readline().removeprefix("#").strip()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents outside `docs`."""
    for document, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(CHECKOUT / document)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Point links to pages; where the text of a link is a file name, put the title of the page in its place.

    A file of the repository that is no page is named, with its place.
    """
    here = page.file.src_uri
    document = DOCUMENTS.get(here, f"docs/{here}")

    def to_page(link: re.Match[str]) -> str:
        target = normpath(PurePosixPath(document).parent / link[2])
        if target not in PAGES and not target.startswith("docs/"):
            return f"`{target}`"
        text = title(target) if link[1].endswith(".md") else link[1]
        place = relpath(PAGES.get(target, target.removeprefix("docs/")), PurePosixPath(here).parent)
        return f"[{text}]({place}{link[3] or ''})"

    return LINK.sub(to_page, markdown)

"""Hook of the documentation site: documents outside `docs` are pages too, and links between all of them stay right."""

from __future__ import annotations

import re
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
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents outside `docs`."""
    for document, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(CHECKOUT / document)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Point links that cross the border of `docs` to pages."""
    here = page.file.src_uri
    document = DOCUMENTS.get(here, f"docs/{here}")

    def to_page(link: re.Match[str]) -> str:
        target = normpath(PurePosixPath(document).parent / link[1])
        return relpath(PAGES.get(target, target.removeprefix("docs/")), PurePosixPath(here).parent)

    return LINK.sub(to_page, markdown)

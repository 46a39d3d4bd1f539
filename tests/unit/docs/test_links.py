"""Links between the documents lead somewhere, and the index lists them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
DOCUMENTS = sorted(
    file for folder in (CHECKOUT, CHECKOUT / "docs", CHECKOUT / "deploy") for file in folder.glob("*.md")
)


def links(document: Path) -> list[str]:
    """The targets of a document's links within the repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8"))
    return [target for target in found if not re.match(r"\w+:", target)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.relative_to(CHECKOUT).as_posix())
def test_every_link_leads_to_a_file(document: Path) -> None:
    assert [target for target in links(document) if not (document.parent / target.split("#")[0]).exists()] == []


def test_the_index_lists_every_document_once() -> None:
    index = CHECKOUT / "docs" / "README.md"
    listed = [(index.parent / target).resolve() for target in links(index)]
    unlisted = {index, CHECKOUT / "README.md", CHECKOUT / "CHANGELOG.md"}

    assert sorted(listed) == sorted(set(DOCUMENTS) - unlisted)


def test_the_readme_leads_to_the_index() -> None:
    assert "docs/README.md" in links(CHECKOUT / "README.md")

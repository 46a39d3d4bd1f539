"""Links between the documents lead to a file and its heading, and the indexes list them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
SPECS = CHECKOUT / "docs" / "specs"
DOCUMENTS = sorted(
    file for folder in (CHECKOUT, CHECKOUT / "docs", SPECS, CHECKOUT / "deploy") for file in folder.glob("*.md")
)


def prose(document: Path) -> str:
    """A document without its code."""
    text = re.sub(r"(?ms)^```.*?^```$", "", document.read_text(encoding="utf-8"))
    return "\n".join(re.sub(r"(`+).+?\1", r"``", line) for line in text.split("\n") if not line.startswith("    "))


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a document."""
    text = re.sub(r"(?ms)^```.*?^```$", "", document.read_text(encoding="utf-8"))
    headings = re.findall(r"(?m)^#{1,6} (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def links(document: Path) -> list[str]:
    """The targets of a document's links within the repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", prose(document))
    return [target for target in found if not re.match(r"\w+:", target)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.relative_to(CHECKOUT).as_posix())
def test_every_link_leads_to_a_file(document: Path) -> None:
    assert [target for target in links(document) if not (document.parent / target.split("#")[0]).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.relative_to(CHECKOUT).as_posix())
def test_every_link_to_a_heading_leads_to_one(document: Path) -> None:
    pointed = [target.split("#") for target in links(document) if "#" in target]
    read = [(file, anchor, (document.parent / file if file else document)) for file, anchor in pointed]

    assert [f"{file}#{anchor}" for file, anchor, path in read if anchor not in anchors(path)] == []


def test_the_index_lists_every_document_once() -> None:
    index = CHECKOUT / "docs" / "README.md"
    listed = [(index.parent / target).resolve() for target in links(index)]
    unlisted = {index, CHECKOUT / "README.md", CHECKOUT / "CHANGELOG.md"} | set(SPECS.glob("*.md")) - {
        SPECS / "README.md"
    }

    assert sorted(listed) == sorted(set(DOCUMENTS) - unlisted)


def test_the_index_of_the_specifications_lists_every_one() -> None:
    listed = {target for target in links(SPECS / "README.md") if "#" not in target}

    assert listed == {file.name for file in SPECS.glob("*.md")} - {"README.md"}


def test_the_readme_leads_to_the_index() -> None:
    assert "docs/README.md" in links(CHECKOUT / "README.md")


def test_the_readme_is_a_landing_page() -> None:
    assert len((CHECKOUT / "README.md").read_text(encoding="utf-8").splitlines()) <= 90


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.relative_to(CHECKOUT).as_posix())
def test_every_test_that_a_document_names_is_there(document: Path) -> None:
    named = re.findall(r"`(tests/[\w/]+\.\w+)`", document.read_text(encoding="utf-8"))

    assert [name for name in named if not (CHECKOUT / name).exists()] == []

"""Citations of the specifications have one form, `specs/NAME 7.4`, and lead to something that is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
SPECS = CHECKOUT / "docs" / "specs"
NAMES = sorted(file.stem for file in SPECS.glob("*.md") if file.name != "README.md")
CITING = sorted(
    file
    for folder in ("stream_dp", "tests", "docs", "agents", "deploy", "experiments")
    for file in (CHECKOUT / folder).rglob("*")
    if file.suffix in (".py", ".md", ".json", ".yaml")
    and file != Path(__file__)
    and file.name != "asyncapi-3.0.0.json"  # cites specifications of others
    and (file.parent != SPECS or file.name == "README.md")
)

CITATION = re.compile(r"(?<![\w.])(?:docs/)?specs/(\w+)(?:\.md)?")
ITEM = re.compile(r"(no\. |tests? |vectors? )?([A-Z]{1,2}\d+\b|\d+(?:\.\d+)*(?!\w))(?:-(\d+))?")
SEPARATOR = re.compile(r", and |, | and | to |; (?=no\. )")
LINK = re.compile(rf"\[({'|'.join(NAMES)}) (\d+(?:\.\d+)*)\]\(([^)\s]+)\)")
# Another form: the bare name with a number, "spec 7.1".
STRAY = re.compile(
    rf"(?<![\w/.])(?:`?(?:{'|'.join(NAMES)})(?:\.md)?`?|\bspec(?:ification)?|\w+\.md) "
    r"(?:section |tests? |pitfalls? |Lemma |Algorithm |Theorem )?(?:\d+(?:\.\d+)*|[A-Z]{1,2}\d+)(?![\w%])"
)


@cache
def sections(name: str) -> dict[str, str]:
    """The numbered sections of a specification, each with the text up to the next heading of its rank."""
    text = (SPECS / f"{name}.md").read_text(encoding="utf-8")
    headings = list(re.finditer(r"(?m)^(#{2,4}) (\d+(?:\.\d+)*)\.? .*$", text))
    found = {}
    for heading in headings:
        later = (
            other.start() for other in headings if other.start() > heading.start() and len(other[1]) <= len(heading[1])
        )
        found[heading[2]] = text[heading.start() : next(later, len(text))]
    return found


@cache
def labels(name: str) -> frozenset[str]:
    """What a specification calls by letters and a number: pitfalls, errata, tests and vectors, ranges included."""
    text = (SPECS / f"{name}.md").read_text(encoding="utf-8")
    found = set(re.findall(r"\b[A-Z]{1,2}\d+\b", text))
    for letters, first, last in re.findall(r"\b([A-Z]{1,2})(\d+)[–-]\1?(\d+)\b", text):
        found |= {f"{letters}{number:0{len(first)}}" for number in range(int(first), int(last) + 1)}
    return frozenset(found)


def is_there(name: str, kind: str, at: str, within: str) -> bool:
    """Look for a section, a numbered paragraph, a label, a row of a table or a test."""
    known = sections(name)
    if at[0].isalpha():
        return at in labels(name)
    if kind.startswith("no."):
        return re.search(rf"(?m)^\| {at} \|", known.get(within, "")) is not None
    if kind.startswith("test"):
        tests = (text for text in known.values() if re.match(r"#+ [\d.]+ Acceptance tests", text))
        return any(re.search(rf"(?m)^{at}\. ", text) for text in tests)
    above, _, last = at.rpartition(".")
    return at in known or re.search(rf"(?m)^{last}\. ", known.get(above, "")) is not None


def wrong(text: str) -> list[str]:
    """What of the citations of a text leads nowhere, or is no citation of the one form."""
    text = re.sub(r"\s*\n\s*(?:# )?", " ", text)
    found = []
    for citation in CITATION.finditer(text):
        name, position, kind, within = citation[1], citation.end() + 1, "", ""
        if name not in NAMES and name != "README":
            found.append(citation[0])
            continue
        while text.startswith(" ", position - 1) and (item := ITEM.match(text, position)):
            kind = item[1] or ("" if kind.startswith("no.") else kind)
            within = within if kind else item[2]
            found += [
                f"specs/{name} {kind}{at}" for at in (item[2], item[3]) if at and not is_there(name, kind, at, within)
            ]
            separator = SEPARATOR.match(text, item.end())
            if separator is None:
                break
            position = separator.end()
    for label, number, target in LINK.findall(text):
        anchor = f"specs/{label}.md#{number.replace('.', '')}-"
        if anchor not in target or not is_there(label, "", number, ""):
            found.append(f"[{label} {number}]({target})")
    return found + [stray[0] for stray in STRAY.finditer(LINK.sub("", text))]


def test_every_citation_leads_somewhere() -> None:
    read = {file: file.read_text(encoding="utf-8") for file in CITING}

    assert {file.relative_to(CHECKOUT).as_posix(): found for file in CITING if (found := wrong(read[file]))} == {}
    assert sum(len(CITATION.findall(text)) for text in read.values()) > 200  # it does find them


def test_every_document_that_code_names_is_there() -> None:
    named = {
        name
        for file in CITING
        if file.suffix == ".py" and file.relative_to(CHECKOUT).parts[0] in ("stream_dp", "agents")
        for name in re.findall(r"(?<![\w/])(?:docs|deploy)/[\w/-]+\.md\b", file.read_text(encoding="utf-8"))
    }

    assert "docs/faust.md" in named
    assert [name for name in sorted(named) if not (CHECKOUT / name).exists()] == []


@pytest.mark.parametrize(
    "text",
    [
        "Source: specs/lossless 7.4, vectors D08, D09.",
        "specs/topk 1.3, 2.1 to 2.3, 5.2.3, test 40",
        "specs/topk 2.7, tests 8, 9, 36-38; specs/lossless 3.6",
        "(specs/lossless 1.1; specs/lossless 5, no. 10)",
        "(specs/gap 6, no. 6, no. 8); specs/topk test 38, P22",
        "Source: specs/lossless\n    7.1 to 7.3, vectors D01 to D06",
        "(specs/subset 1.2, P3); docs/specs/gap.md",
        "[gap 3.3](specs/gap.md#33-monotone)",
        "the gap, 10; a subset of 3; topk: 4",
    ],
)
def test_what_is_right_passes(text: str) -> None:
    assert wrong(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "specs/lossless 7.99",
        "specs/lossless 7.4, 7.99",
        "specs/lossless 7.1 to 7.99",
        "specs/nothing 1",
        "specs/nothing",
        "specs/topk P99",
        "specs/topk 5.2.99",
        "specs/topk 2.7, tests 8, 99",
        "specs/topk 2.7, tests 36-99",
        "specs/lossless 5, no. 99",
        "specs/lossless 7.4, vectors D08, D99",
        "lossless 7.4",
        "`gap` 2.6",
        "`topk 3.5`",
        "topk section 7",
        "topk test 16",
        "specs/topk test 99",
        "topk P5",
        "streaming.md 4.2",
        "(spec 7.1)",
        "[gap 3.3](specs/gap.md#34-exact)",
        "[gap 9.9](specs/gap.md#99-nothing)",
    ],
)
def test_what_is_wrong_fails(text: str) -> None:
    assert len(wrong(text)) == 1

"""Every `stream-dp ...` of the documents is a command with options that it has, and docs/commands.md has them all."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from stream_dp.cli import cli

CHECKOUT = Path(__file__).parents[3]
PAGE = CHECKOUT / "docs" / "commands.md"
DOCUMENTS = [CHECKOUT / "README.md", CHECKOUT / "deploy" / "README.md", *sorted((CHECKOUT / "docs").glob("*.md"))]


def bare(line: str) -> str:
    """Cut a comment, and what a shell does with the output."""
    return re.split(r"\s+#|\s[>|&]|  +", line)[0].strip()


def lines_of(text: str) -> list[str]:
    """Commands of the code blocks of a document, without a prompt."""
    blocks = re.findall(r"^```[\w-]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    found = [re.match(r"\s*(?:\$ )?(stream-dp [a-z-].*)", line) for line in lines]
    return [bare(match[1]) for match in found if match]


def mentions_of(text: str) -> list[str]:
    """Commands in the sentences of a document."""
    prose = re.sub(r"(?ms)^```.*?^```$", "", text)
    return [bare(" ".join(words.split())) for words in re.findall(r"`(stream-dp\s[a-z-][^`]*)`", prose)]


def fault_of(line: str, *, is_whole: bool) -> str:
    """Return what is wrong with a command, or nothing.

    Args:
        line: the command.
        is_whole: arguments and required options may not be missing.
    """
    command: click.Command = cli
    words = shlex.split(line)[1:]
    context = click.Context(cli, info_name="stream-dp")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        if command.get_command(context, words[0]) is None and "FILE" in (command.subcommand_metavar or ""):
            words = ["list", *words]  # it may be left out
        found = command.get_command(context, words[0])
        if found is None:
            return f"no command {words[0]}"
        command, words = found, words[1:]
        context = click.Context(command, parent=context, info_name=command.name)
    try:
        values, left, _ = command.make_parser(context).parse_args(list(words))
    except click.UsageError as error:
        return error.format_message()
    if left:
        return f"too many arguments: {left}"
    given = {name for name, value in values.items() if value not in (None, ()) and "UNSET" not in repr(value)}
    missing = [one.name for one in command.params if one.required and one.name not in given]
    return f"missing: {missing}" if is_whole and missing else ""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.relative_to(CHECKOUT).as_posix())
def test_every_command_in_a_document_exists_with_its_options(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    faults = [(line, fault_of(line, is_whole=True)) for line in lines_of(text)]
    faults += [(line, fault_of(line, is_whole=False)) for line in mentions_of(text)]

    assert [(line, fault) for line, fault in faults if fault] == []


def test_the_documents_have_commands() -> None:
    texts = [document.read_text(encoding="utf-8") for document in DOCUMENTS if document != PAGE]

    assert sum(len(lines_of(text)) for text in texts) > 40
    assert sum(len(mentions_of(text)) for text in texts) > 50


@pytest.mark.parametrize(
    "line",
    [
        "stream-dp prune app.yaml",
        "stream-dp worker app.yaml --fast",
        "stream-dp worker app.yaml other.yaml",
        "stream-dp worker",
        "stream-dp grant app.yaml partner",
        "stream-dp token give app.yaml",
        "stream-dp keys rotate app.yaml --fast",
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    assert fault_of(line, is_whole=True)


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield every command below a group, with its name as it is typed."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, parent=context, info_name=name, terminal_width=78)
        yield inner.command_path, command, inner
        if isinstance(command, click.Group):
            yield from commands(command, inner)


def test_the_page_of_commands_is_that_of_the_help() -> None:
    """`WRITE_GOLDEN=1 python -m pytest tests/unit/docs/test_commands.py` writes it anew."""
    known = list(commands(cli, click.Context(cli, info_name="stream-dp")))
    rows = [
        f"| [`{path}`](#{path.replace(' ', '-')}) | {command.get_short_help_str(200)} |"
        for path, command, _ in known
        if path.count(" ") == 1
    ]
    parts = ["| command | |", "|---|---|", *rows]
    for path, command, context in known:
        parts += ["", f"{'#' * (1 + path.count(' '))} {path}", "", "```text", command.get_help(context), "```"]
    text = PAGE.read_text(encoding="utf-8")
    head, mark, _ = text.partition("<!-- help -->\n")
    whole = head + mark + "\n".join(parts) + "\n"
    if os.environ.get("WRITE_GOLDEN"):
        PAGE.write_text(whole, encoding="utf-8")

    assert mark
    assert text == whole

"""The contents of the Markdown pages for tests: fences with their marks, code, links and headings.

A mark is a comment on the line above a fence, which readers of the page do not see:

    <!-- run: local -->            these commands are run, on nodes of this machine, in the order of the page
    <!-- run: fails -->            the same, and the last of them ends with an error
    <!-- not run: machines -->     they are not, for a reason of REASONS
    <!-- file: train.py -->        the fence is written to this file, or added to it
    <!-- shows -->                 each line stands in what was printed so far; `...` is any text
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.make_site import CHECKOUT, markdown_pages

REASONS = {
    "machines": "needs machines that SSH reaches, and root there",
    "cloud": "needs an account that costs money",
    "network": "downloads",
    "checkout": "is a target of make, or a tool of the tests",
}
FENCE = re.compile(r"^(?:<!-- (?P<mark>[^>]*?) -->\n)?```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^```$", re.M | re.S)


class Fence(NamedTuple):
    """A fenced block: its page and line there, language, mark ("" without one) and text."""

    page: str
    line: int
    language: str
    mark: str
    body: str


def text_of(page: str) -> str:
    """The text of a page, by its path in the repository."""
    return (CHECKOUT / page).read_text(encoding="utf-8")


def fences(page: str) -> list[Fence]:
    """The fenced blocks of a page, in order."""
    text = text_of(page)
    return [
        Fence(page, text[: result.start()].count("\n") + 1, result["language"], result["mark"] or "", result["body"])
        for result in FENCE.finditer(text)
    ]


def spans(page: str) -> list[str]:
    """The code spans of a page outside fences."""
    return re.findall(r"`([^`\n]+)`", FENCE.sub("", text_of(page)))


def commands(page: str) -> list[str]:
    """Return the code: lines in shell fences, without comments, and code spans."""
    lines = [line for fence in fences(page) if fence.language == "sh" for line in fence.body.splitlines()]
    return [*(re.sub(r"(^|\s)#\s.*", "", line).strip() for line in lines), *spans(page)]


def section(page: str, title: str) -> tuple[dict[str, str], list[str]]:
    """The files of a section, each with its text, and the short words that are typed there, in order."""
    head, _line, rest = text_of(page).partition(f"\n## {title}\n")
    assert rest, f"{page} has no section {title!r}"
    text = rest.partition("\n## ")[0]
    result = [fence for fence in fences(page) if fence.body in text and fence.line > head.count("\n")]
    files = {fence.mark.partition(": ")[2]: fence.body for fence in result if fence.mark.startswith("file: ")}
    return files, re.findall(r"`(\./muster [^`\n]+)`", FENCE.sub("", text))


def links(page: str) -> list[str]:
    """The targets of links and pictures outside fences and code."""
    text = re.sub(r"`[^`\n]*`", "`", FENCE.sub("", text_of(page)))
    return re.findall(r"\]\(([^)\s]+)\)", text)


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    result: list[str] = []
    for title in re.findall(r"^#{1,6} (.+)$", FENCE.sub("", text_of(page)), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title.replace("`", "").replace("\\", ""))
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        result.append(f"{slug}-{result.count(slug)}" if slug in result else slug)
    return set(result)


PAGES = markdown_pages()
CONTAINERS = ("docs/containers.md", "Coming from a guide with `docker run` on each machine")
"""The section whose commands are checked here, and run on test hosts in the docker scenario."""
GUIDES = [page for page in PAGES if page == "README.md" or Path(page).parent.name == "docs"]
"""Pages for users, except those about a single role."""

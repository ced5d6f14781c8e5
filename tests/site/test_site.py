"""The documentation site as built: it is complete, and loads nothing from elsewhere. `make docs` runs this."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.make_site import CHECKOUT, markdown_pages

SITE = CHECKOUT / "build" / "docs"
PAGES = sorted(SITE.rglob("*.html"))
LOADING = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
"""Elements for which a browser loads a resource, and the attribute that names it. Links that the user clicks are not
included.
"""


class Loaded(HTMLParser):
    """The resources that a page makes a browser load, and what it links to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in LOADING:
            self.loads += [values.get(LOADING[tag]) or ""]
        if tag == "a":
            self.links += [values.get("href") or ""]


def test_every_markdown_page_role_and_plugin_has_a_page() -> None:
    written = {str(page.relative_to(SITE).with_suffix("")) for page in PAGES}
    expected = {"index" if page == "README.md" else page.removesuffix(".md") for page in markdown_pages()}
    expected |= {f"reference/{path.name}_role" for path in (CHECKOUT / "roles").iterdir()}
    for kind, singular in (("modules", "module"), ("filter",) * 2, ("lookup",) * 2, ("inventory",) * 2):
        names = {path.stem for path in (CHECKOUT / "plugins" / kind).iterdir() if path.suffix in (".py", ".yml")}
        expected |= {f"reference/{name}_{singular}" for name in names}
    assert expected - written == set()


@pytest.mark.parametrize("pattern", ["*.css", "*.js"])
def test_style_sheets_and_scripts_load_nothing_from_other_sites(pattern: str) -> None:
    files = sorted(SITE.rglob(pattern))
    assert files
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert re.findall(r"(?:url\(|@import|fetch\(|importScripts\()\s*[\"']?(?:https?:)?//[^\"')]*", text) == [], file


def test_pages_load_nothing_from_other_sites_and_internal_links_work() -> None:
    assert len(PAGES) > 100
    for page in PAGES:
        result = Loaded(page)
        assert [load for load in result.loads if re.match(r"(https?:)?//", load)] == [], page
        for target in result.loads + result.links:
            path = target.partition("#")[0].partition("?")[0]
            if path and not re.match(r"[a-z]+:|//", path):
                assert (page.parent / path).exists(), f"{page}: {target}"


def test_theme_reports_no_errors() -> None:
    for page in PAGES:
        assert "ERROR: Adding a table of contents" not in page.read_text(encoding="utf-8"), page

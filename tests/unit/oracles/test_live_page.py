# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The live page in a real browser, narrow and wide, light and dark: what nodes send appears, hostile text stays text,
a checker of accessibility finds nothing, and buttons work with the keyboard."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import browser
from tests.support.browser import Browser
from tests.unit.plugins.plugin_utils.page.page_data import START, make_plan, make_reply, make_sample, write_record
from tests.unit.plugins.plugin_utils.page.test_server import Page, serving
from tests.unit.supervised import eventually

CHECKOUT = Path(__file__).resolve().parents[3]
AXES = sorted((CHECKOUT / "build").glob("axe-*/**/axe.min.js"))
VIEWS = ((390, True), (1280, False))  # a phone and a desktop screen, one of them in dark mode
CHECK = "axe.run(document, {resultTypes: ['violations']}).then(reply => reply.violations)"
HOSTILE = "<img src=x onerror='window.owned=1'><script>window.owned=1</script>"
NODES = 64
GPUS = 8

pytestmark = pytest.mark.skipif(browser.program() is None, reason="there is no Chromium on this machine")


class Cluster:
    """The nodes of a large run, whose next update is set by a test."""

    def __init__(self) -> None:
        self.plan = make_plan(NODES, GPUS)
        names = [node["name"] for node in self.plan["nodes"]]
        lines = [f"step {step}: loss {4 * math.exp(-step / 40):.4f}" for step in range(200)]
        samples = [
            make_sample(name, 0, 40 + number % 60, GPUS, START + 15 * time)
            for time in range(20)
            for number, name in enumerate(names)
        ]
        self.news: list[dict[str, Any]] = [
            self.reply(
                outputs={"/x": "\n".join([*lines, HOSTILE]) + "\n"},
                events=[
                    {"time": START, "event": "go", "text": HOSTILE},
                    {"event": "health", "text": f"gpu1: {HOSTILE}"},
                ],
                samples=samples,
            )
        ]

    def reply(self, **fields: Any) -> dict[str, Any]:
        nodes = [{"name": node["name"], "state": "running", "since": START} for node in self.plan["nodes"]]
        hang = {"text": f"511 of 512 ranks wait; rank 3 is in {HOSTILE}", "awaited_ranks": [3], "since": START}
        return make_reply(**{**fields, "status": {"nodes": nodes, "hang": hang, **fields.get("status", {})}})

    def __call__(self, name: str, request: Mapping[str, Any], _timeout: float) -> dict[str, Any]:
        if request["operation"] == "search":
            line = {"rank": 9, "log": "ranks/1/stderr.log", "line": HOSTILE}
            return {"matches": [line] if name == "gpu1" else []}
        if request["operation"] == "watch":
            return make_reply(outputs={} if request["cursors"] else {"/x": f"output of {name}\n"})
        return self.news.pop(0) if self.news else self.reply()


@contextlib.contextmanager
def serving_cluster(directory: Path) -> Iterator[Page]:
    """Serve the page of a Cluster's run, whose record is in this directory."""
    cluster = Cluster()
    write_record(directory, cluster.plan)
    served = Page(directory)
    served.api.call = served.cluster = cluster  # type: ignore[attr-defined]
    with serving(served):
        yield served


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with serving_cluster(tmp_path / "runs") as served:
        yield served


def open_page(window: Browser, url: str) -> None:
    """Open an address, and wait until its script has run."""
    window.open()
    window.call("Page.navigate", url=url)
    eventually(lambda: window.evaluate("document.readyState === 'complete' && !!document.title"))


def text_of(window: Browser, selector: str) -> str:
    text: str = window.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")
    return text


def press(window: Browser, key: str, code: int) -> None:
    """Press a key."""
    for kind in ("keyDown", "keyUp"):
        text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
        window.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)


def check_accessibility(window: Browser, where: object) -> None:
    """Check a page with axe-core, which the page's content security policy does not let it load."""
    if not AXES:
        return
    window.evaluate(f"{AXES[-1].read_text()}; 0")
    violations = window.evaluate(CHECK)
    assert [(rule["id"], [node["html"][:300] for node in rule["nodes"]]) for rule in violations] == [], where


def test_page_shows_a_run_and_escapes_hostile_text(page: Page) -> None:
    """A single browser does all of this, since starting one takes a second."""
    with Browser() as window:
        open_page(window, page.server.url())
        eventually(lambda: "train.py --epochs 3" in text_of(window, "#runs"))
        assert page.server.token not in window.evaluate("location.href + document.title")
        window.evaluate("document.querySelector('#runs a').click()")
        eventually(lambda: "running" in text_of(window, "#state"))
        eventually(lambda: window.evaluate("document.querySelectorAll('#metrics svg').length") == 1)
        eventually(lambda: window.evaluate("document.querySelectorAll('#strips canvas').length") == 6)
        eventually(lambda: HOSTILE in text_of(window, "#output"))
        for selector in ("#events", "#findings", "#output"):
            assert HOSTILE in text_of(window, selector), selector
        assert len(window.evaluate("[...document.querySelectorAll('#nodes tr')].map(row => row.innerText)")) == NODES
        assert "230.40 USD an hour" in text_of(window, "#facts")
        assert "loss" in text_of(window, "#metrics")

        for width, dark in VIEWS:
            window.show(width, dark)
            assert window.evaluate("document.documentElement.scrollWidth") <= width
            check_accessibility(window, (width, dark))

        cluster = page.cluster  # type: ignore[attr-defined]
        cluster.news.append(cluster.reply(samples=[make_sample("gpu5", 1, 7.0, GPUS, START + 600)]))
        eventually(lambda: "7 %" in window.evaluate("document.querySelectorAll('#nodes tr')[5].innerText"))

        window.evaluate(
            "const rank = document.querySelector('#rank'); rank.value = 9; rank.dispatchEvent(new Event('change'));"
            # polls while the first request for this rank is in flight
            "Promise.all([1, 2].map(() => readOutput(`runs/${page.run}`))).then(() => 0)"
        )
        eventually(lambda: "output of gpu1" in text_of(window, "#output"))
        assert text_of(window, "#output") == "output of gpu1"
        window.evaluate(
            "document.querySelector('#search-text').value = 'img'; document.querySelector('#search').requestSubmit()"
        )
        eventually(lambda: "1 lines" in text_of(window, "#search-state"))
        assert HOSTILE in text_of(window, "#matches")
        window.evaluate("document.querySelector('#strip-node').value = 'gpu5'")
        window.evaluate("document.querySelector('#strip-node').dispatchEvent(new Event('change'))")
        eventually(lambda: "8 rows" in text_of(window, "#strips figcaption"))

        window.evaluate("document.querySelector('[data-command=stop]').focus()")
        press(window, "Enter", 13)
        eventually(lambda: window.evaluate("document.querySelector('#confirm').open"))
        check_accessibility(window, "dialog")
        assert window.evaluate("document.activeElement.id") == "confirm-no"
        press(window, "Escape", 27)
        eventually(lambda: not window.evaluate("document.querySelector('#confirm').open"))
        assert page.started == []
        press(window, "Enter", 13)
        eventually(lambda: window.evaluate("document.querySelector('#confirm').open"))
        window.evaluate("document.querySelector('#confirm-yes').click()")
        eventually(lambda: len(page.started) == 1)
        eventually(lambda: "onerror" in text_of(window, "#command-output"))
        assert window.evaluate("window.owned") is None
        assert window.evaluate("document.querySelectorAll('img, iframe, script:not([src])').length") == 0


def test_page_without_the_token_explains_what_to_do(page: Page) -> None:
    with Browser() as window:
        open_page(window, f"{page.origin}/")
        eventually(lambda: "open the URL that ./muster page printed" in text_of(window, "#failure"))
        assert "train.py" not in window.evaluate("document.body.innerText")


def test_another_page_can_neither_read_the_page_nor_press_its_buttons(page: Page) -> None:
    url = json.dumps(f"{page.origin}/api/runs/first/stop")
    bearer = json.dumps({"Authorization": f"Bearer {page.server.token}"})
    with Browser() as window:
        window.open()
        assert (
            window.evaluate(f"fetch({url}, {{method: 'POST', headers: {bearer}}}).then(() => 'sent', () => 'refused')")
            == "refused"
        )
        window.evaluate(f"fetch({url}, {{method: 'POST', mode: 'no-cors'}}).catch(() => 0)")
        assert page.started == []

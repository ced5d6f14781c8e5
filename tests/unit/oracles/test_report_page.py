# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages of reports in a real browser, narrow and wide, light and dark: a checker of accessibility finds nothing, no
page is wider than its window, and what is seen are the plots and the numbers of report.json."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._report.page import format_money, format_value, gpu_row
from ansible_collections.muster.training.plugins.plugin_utils._report.writer import write_comparison, write_report
from tests.support import browser
from tests.support.browser import Browser
from tests.unit.plugins.plugin_utils.report.records import START, write_events, write_record
from tests.unit.plugins.plugin_utils.report.test_writer import hostile_record

CHECKOUT = Path(__file__).resolve().parents[3]
AXES = sorted((CHECKOUT / "build").glob("axe-*/**/axe.min.js"))
ERROR = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
VIEWS = ((390, True), (1280, False))  # a telephone and a screen, one of them dark
PRINTED = 718  # pixels between the margins of an A4 page, 1 cm each
PAPER = {False: "#ffffff", True: "#14171a"}
# To a screen reader, a picture is a single element with a name; its colors are tested in test_plots.
CHECK = "axe.run({exclude: [['svg > *']]}, {resultTypes: ['violations']}).then(told => told.violations)"
FIGURES = """
[...document.querySelectorAll("figure")].map(figure => {
  const box = figure.getBoundingClientRect(), svg = figure.querySelector("svg"), drawn = svg?.getBoundingClientRect();
  const region = svg?.parentElement.getBoundingClientRect();
  return {
    left: box.left, right: box.right, caption: figure.querySelector("figcaption").innerText,
    name: svg?.getAttribute("aria-label"),
    picture: svg && [drawn.left, drawn.top + scrollY, Math.min(drawn.right, region.right) - drawn.left, drawn.height],
  };
})
"""
# The number of pixels between each two neighboring words of an axis
BETWEEN = """
[...document.querySelectorAll(".role-axis-label")].flatMap(axis => {
  const boxes = [...axis.querySelectorAll("text")].filter(text => text.getAttribute("opacity") !== "0")
    .map(text => text.getBoundingClientRect());
  return boxes.slice(1).map((box, place) => {
    const before = boxes[place], across = Math.abs(box.top - before.top) < 2;
    return across ? box.left - before.right : Math.abs(box.top - before.top) - Math.min(box.height, before.height);
  });
})
"""
CUT = """
[...document.querySelectorAll(".wide")].filter(region => region.scrollWidth > region.clientWidth)
  .map(region => region.getAttribute("aria-label"))
"""
TABLE = """
(name => [...document.querySelector(`[aria-label="${name}"] tbody`).rows].map(
  row => [...row.cells].map(cell => cell.innerText)
))
"""

pytestmark = [
    pytest.mark.skipif(browser.program() is None, reason="there is no Chromium on this machine"),
    pytest.mark.skipif(not AXES, reason="make has not installed axe-core into build"),
]


def rich_record(runs: Path, run_id: str) -> Path:
    """Return a record with everything that a page can show."""
    failure = {
        "node": "gpu1",
        "node_rank": 1,
        "rank": 2,
        "error": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "log": "/x/node1/ranks/2/stderr.log",
    }
    directory = write_record(
        runs,
        run_id,
        nodes=2,
        gpus=2,
        sample=lambda node, gpu, second: (
            97 - 40 * node - 7 * gpu,
            9000 * (1 + node + 2 * gpu),
            60 + 5 * node + 2 * gpu,
            210 + 90 * gpu + 30 * node,
        ),
        result={"state": "failed", "first_failure": failure, "job_results": {"accuracy": 0.25, "place": "/x/" * 60}},
    )
    node = directory / "logs" / "node0"
    write_events(node / "events.out.tfevents.1", "train/loss", [2 / (1 + step) for step in range(900)])
    (node / "nvidia-smi.txt").write_text("NVIDIA-SMI 550\n")
    for path, text in (
        (node / "ranks" / "0" / "stdout.log", "View run at https://wandb.ai/team/x/runs/1\n"),
        (directory / "logs" / "node1" / "ranks" / "2" / "stderr.log", f"Traceback\n{ERROR}\n"),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return directory


def check_view(chromium: Browser, page: Path, width: int, dark: bool) -> None:
    """Check the requirements on each page."""
    where = f"{page.parent.name}, {width} px"
    chromium.show(width, dark)
    chromium.open(page)
    assert chromium.evaluate("document.documentElement.scrollWidth") == width, where
    assert min(chromium.evaluate(BETWEEN)) > 3, (where, "words at an axis run into each other")
    figures = chromium.evaluate(FIGURES)
    for item in figures:
        assert 0 <= item["left"] < item["right"] <= width and item["caption"], (where, item)
    chromium.evaluate(f"{AXES[-1].read_text()}; 0")
    result = [
        (item["id"], item["help"], [node["html"][:300] for node in item["nodes"]]) for item in chromium.evaluate(CHECK)
    ]
    assert result == [], where
    drawn = [item for item in figures if item["picture"]]
    assert [item["name"] for item in drawn] == [name_of(spec) for spec in specs(page)], where
    pixels = chromium.colors(chromium.picture(), [(0, 0, 1, 1), *(item["picture"] for item in drawn)])
    assert pixels[0] == {PAPER[dark]: 1}, where
    for colors, spec in zip(pixels[1:], specs(page), strict=True):
        for line in lines_of(spec):
            assert sum(count for color, count in colors.items() if alike(color, line)) > 30, (where, spec["title"])
        assert colors[PAPER[dark]] > sum(colors.values()) / 3, (where, spec["title"])


def check_paper(chromium: Browser, page: Path) -> None:
    """Check the requirements on each printed page, even if the user prefers dark mode: it is white, and nothing is
    folded or cut off.
    """
    chromium.show(PRINTED, dark=True, medium="print")
    chromium.open(page)
    assert chromium.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert chromium.evaluate(CUT) == [], page
    folded = "[...document.querySelectorAll('details table')].filter(one => !one.checkVisibility()).length"
    assert chromium.evaluate(folded) == 0, page


def alike(item: str, second: str) -> bool:
    """Return whether a pixel has a line's color, or most of it: a line need not fill the pixels at its edges."""
    pairs = zip(bytes.fromhex(item[1:]), bytes.fromhex(second[1:]), strict=True)
    return all(abs(value - expected) < 96 for value, expected in pairs)


def specs(page: Path) -> list[dict[str, Any]]:
    """Return the specifications of the plots on a page, curves before GPUs, in page order."""
    order = ("curve-", "gpu-utilization", "gpu-memory", "gpu-power", "gpu-temperature")
    paths = [path for word in order for path in sorted((page.parent / "plots").glob(f"{word}*.vl.json"))]
    return [json.loads(path.read_text()) for path in paths]


def name_of(spec: dict[str, Any]) -> str:
    name: str = spec["description"]
    return name


def lines_of(spec: dict[str, Any]) -> list[str]:
    """Return the colors of the lines that a plot must show; for lines that may overlap, the last one."""
    text = json.dumps(spec)
    several = re.findall(r'"range": \[("#[0-9A-F]{6}"(?:, "#[0-9A-F]{6}")*)\]', text)
    if several:
        return [str(json.loads(f"[{several[-1]}]")[-1])]
    return re.findall(r'"type": "line", "strokeWidth": [0-9.]+, "color": "(#[0-9A-F]{6})"', text)


def test_pages_are_accessible_and_show_plots_and_numbers_of_the_report(tmp_path: Path) -> None:
    """A single browser checks all pages, since starting one takes a second."""
    runs, book = tmp_path / "runs", tmp_path / "logbook"
    rich, second, hostile = rich_record(runs, "rich"), rich_record(runs, "other"), hostile_record(runs)
    report = write_report(rich, book, START).report
    write_report(hostile, book, START)
    compared, _reason = write_comparison([rich, second], book, None, START)
    with Browser() as chromium:
        for page in (rich / "report.html", hostile / "report.html", compared):
            for width, dark in VIEWS:
                check_view(chromium, page, width, dark)
        for page in (rich / "report.html", compared):
            chromium.show(1280)
            chromium.open(page)
            assert chromium.evaluate(CUT) == [], page
            check_paper(chromium, page)
        for width, dark in VIEWS:
            chromium.show(width, dark)
            chromium.open(rich / "report.html")
            numbers = json.loads((rich / "report.json").read_text())
            text = " ".join(chromium.evaluate("document.body.innerText").split())
            for arguments in (
                *numbers["verdict"].split("; failed first: "),  # the second part opens the section on the failure
                format_money(numbers["cost"]["run"], "USD"),
                numbers["failure"]["cause"]["remedy"],
                *(item["problem"] for item in numbers["findings"]),
                *(format_value(item["value"]) for item in numbers["metrics"]),
            ):
                assert " ".join(arguments.split()) in text, arguments
            assert chromium.evaluate(f"{TABLE}('GPUs')") == [gpu_row(gpu) for gpu in report["gpus"]]
            assert [row[0] for row in chromium.evaluate(f"{TABLE}('Nodes')")] == ["gpu0", "gpu1"]

"""Take the screenshots of pages in docs/ with a real browser: the live page, and the profile in a report.

Their content is made up here and shown by the same code as that of a real run. What they show as text is recorded in
tests/pictures; tests/unit/oracles/test_page_pictures.py fails if it is outdated. `make pictures` takes them again.

    python -m tests.make_page_pictures
"""

from __future__ import annotations

import base64
import json
import math
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._report.writer import write_report
from tests.make_pictures import PICTURES, RECORDINGS
from tests.support.browser import Browser
from tests.unit.plugins.plugin_utils.page.page_data import make_plan, make_reply, make_sample
from tests.unit.plugins.plugin_utils.page.page_data import write_record as write_page_record
from tests.unit.plugins.plugin_utils.page.test_server import Page, serving
from tests.unit.plugins.plugin_utils.report.records import write_record
from tests.unit.supervised import eventually

NAME = "bert-20260301-101500-1a2b"
NODES, GPUS, WIDTH = 4, 8, 1100
STEP = 30.0  # seconds between two samples: by then, as wide as one of the page's buckets
AGE = 8047.0  # seconds since the start of the run on the live page
SLOW = (
    "GPU 5 of gpu2 is running at 1140 MHz, the others at 1755 MHz (402 W, the others 655 W; hardware thermal slowdown)"
    "; the run is limited to its pace: up to 35 % of the time, 17.50 USD an hour"
)
REPLACED = (
    (r"\b\d+:\d\d:\d\d(?: [AP]M)?\b", "0:00:04"),
    (r"\b\d+/\d+/\d{4}\b|\b\d{4}-\d\d-\d\d\b", "2026-03-01"),
    (r"\b\d+\.\d\d USD,", "111.76 USD,"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:40327"),
)
"""Patterns of texts that vary, and their replacements in recordings."""


class Shot(NamedTuple):
    """A picture, and the text that it shows."""

    png: bytes
    text: str


def take(window: Browser, top: float, bottom: float, selector: str) -> Shot:
    """Take a picture of a part of the page.

    top, bottom: in pixels of the page. selector: of the element with the text.
    """
    clip = {"x": 0, "y": top, "width": WIDTH, "height": bottom - top, "scale": 1}
    reply = window.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
    text = window.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")
    for pattern, replacement in REPLACED:
        text = re.sub(pattern, replacement, text)
    lines = [line.strip() for line in text.splitlines()]
    return Shot(base64.b64decode(reply["data"]), "".join(f"{line}\n" for line in lines if line))


class Nodes:
    """The nodes of a made-up run, the first of which sends its updates once."""

    def __init__(self) -> None:
        self.start = time.time() - AGE
        names = [f"gpu{number}" for number in range(NODES)]
        moments = [self.start + STEP * number for number in range(int(AGE / STEP))]
        samples = [
            make_sample(name, 0, self.utilization(index, moment - self.start), GPUS, moment)
            for moment in moments
            for index, name in enumerate(names)
        ]
        self.names = names
        self.first: dict[str, Any] = {
            "samples": samples,
            "outputs": {"/x": "".join(f"{line}\n" for line in self.lines())},
            "events": [
                {"time": self.start, "event": "go", "text": "all 4 nodes have checked in"},
                {"time": self.start + 3600, "event": "saving", "text": "gpu0: wrote the notice file for 8 ranks"},
                {"time": self.start + 7000, "event": "slow", "text": SLOW},
            ],
        }

    @staticmethod
    def utilization(node: int, seconds: float) -> float:
        """Return how busy a node's GPUs are: less while the job evaluates, and on the slow node."""
        evaluates = 60.0 if seconds % 1800 > 1650 else 0.0
        return 97.0 - evaluates - (14.0 if node == 2 and seconds > 6600 else 0.0) - 3 * math.sin(seconds / 300 + node)

    @staticmethod
    def lines() -> list[str]:
        return [f"step {step}: loss {1.2 + 3 * math.exp(-step / 900):.4f}" for step in range(20, 5400, 20)]

    def __call__(self, _name: str, _request: Mapping[str, Any], _timeout: float) -> dict[str, Any]:
        nodes = [{"name": name, "state": "running", "since": self.start} for name in self.names]
        status = {"nodes": nodes, "started": self.start, "slow": [SLOW]}
        news, self.first = self.first, {}
        return make_reply(status=status, seconds_since_output=2.0, **news)


def page_shot() -> Shot:
    """Take a picture of the live page."""
    with tempfile.TemporaryDirectory() as directory:
        plan = make_plan(NODES, GPUS, NAME, price=12.5)
        write_page_record(Path(directory) / "runs", plan)
        page = Page(Path(directory) / "runs")
        page.api.call = Nodes()
        with serving(page), Browser() as window:
            window.open()
            window.show(WIDTH)
            window.call("Page.navigate", url=page.server.url(NAME))
            eventually(lambda: window.evaluate("document.querySelectorAll('#strips canvas').length") == 6)
            eventually(lambda: "step 5380" in window.evaluate("document.querySelector('#output').innerText"))
            last = "document.querySelectorAll('#strips figure')[2]"  # the others look alike
            end = window.evaluate(f"{last}.getBoundingClientRect().bottom + scrollY")
            shot = take(window, 0, end + 16, "#main")
            return Shot(shot.png, shot.text.partition("GPU temperature\n")[0])


def profile_shot() -> Shot:
    """Take a picture of the profile in a report."""
    collectives = (0.121, 0.118, 0.119, 0.019, 0.120, 0.117, 0.118, 0.121)
    ranks = [
        {
            "rank": rank,
            "node": f"gpu{rank // 4}",
            "steps": 5,
            "step_seconds": 0.412,
            "collective_seconds": seconds,
            "waiting_seconds": max(0.0, seconds - 0.018),
            "gpu_seconds": 0.385 - (0.1 if rank != 3 else 0.0),
        }
        for rank, seconds in enumerate(collectives)
    ]
    operations = [
        {"name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "device": "gpu", "count": 12.0, "seconds": 0.107},
        {"name": "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_nn", "device": "gpu", "count": 96.0, "seconds": 0.098},
        {"name": "flash_fwd_kernel", "device": "gpu", "count": 24.0, "seconds": 0.041},
        {"name": "aten::copy_", "device": "cpu", "count": 210.0, "seconds": 0.012},
    ]
    profile = {
        "time": 1_772_360_104.0,
        "timeline": "profiles/timeline.json.gz",
        "ranks": ranks,
        "operations": operations,
        "late": [3],
    }
    with tempfile.TemporaryDirectory() as directory:
        record = write_record(Path(directory) / "runs", NAME)
        (record / "profile.json").write_text(json.dumps(profile))
        report = write_report(record, Path(directory) / "book", 1_772_363_704.0)
        with Browser() as window:
            window.open(report.page)
            window.show(WIDTH)
            window.evaluate(
                "for (const details of document.querySelectorAll('details')) details.open = true;"
                "const heading = [...document.querySelectorAll('h2')].find(item => item.innerText === 'Profile');"
                "const section = document.createElement('div'), parts = []; section.id = 'shot'; let next = heading;"
                "do { parts.push(next); next = next.nextElementSibling; } while (next && next.tagName !== 'H2');"
                "heading.before(section); section.append(...parts); 0"
            )
            box = "document.querySelector('#shot').getBoundingClientRect()"
            top, bottom = window.evaluate(f"[{box}.top + scrollY, {box}.bottom + scrollY]")
            return take(window, top - 8, bottom + 8, "#shot")


SHOTS: dict[str, Callable[[], Shot]] = {"page": page_shot, "profile": profile_shot}


def main() -> None:
    """Take all pictures, and record their text."""
    for name, shoot in SHOTS.items():
        shot = shoot()
        (PICTURES / f"{name}.png").write_bytes(shot.png)
        (RECORDINGS / f"{name}.txt").write_text(shot.text, encoding="utf-8")


if __name__ == "__main__":
    main()

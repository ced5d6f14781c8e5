# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a report: the page, the logbook, a comparison; with hostile text from nodes and jobs."""

from __future__ import annotations

import csv
import getpass
import json
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._report import logbook
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import Report
from ansible_collections.muster.training.plugins.plugin_utils._report.writer import (
    comparison_name,
    is_current,
    write_comparison,
    write_report,
)
from tests.unit.plugins.plugin_utils.report.records import (
    HOSTILE,
    START,
    Page,
    Sample,
    write_events,
    write_record,
)

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
MOUNT = "OSError: [Errno 107] Transport endpoint is not connected"  # counts found in the log, regardless of the error
LONGEST_ID = "r" + "x" * 62  # as long as a run ID may be


def written(directory: Path, book: Path | None = None) -> tuple[str, Report]:
    result = write_report(directory, book or directory.parent.parent / "logbook", START)
    return result.page.read_text(), result.report


def check_page(content: str) -> Page:
    """Check the invariants of a page, regardless of the record."""
    page = Page(content)
    tags = [tag for tag, _attributes in page.tags]
    assert not {"script", "iframe", "object", "embed", "form", "img", "link", "base", "foreignobject"} & set(tags)
    assert not [name for _tag, attributes in page.tags for name in attributes if name.startswith("on")]
    assert [item for item in page.addresses() if not item.startswith("https://wandb.ai/")] == []
    assert page.elements("html")[0]["lang"] == "en"
    assert "default-src 'none'" in content
    headings = [int(tag[1]) for tag in tags if tag in ("h1", "h2", "h3", "h4", "h5", "h6")]
    assert headings.count(1) == 1 and headings[0] == 1
    assert all(later <= earlier + 1 for earlier, later in zip(headings, headings[1:], strict=False))
    for picture in page.elements("svg"):
        assert picture["role"] == "img" and picture["aria-label"]
    assert tags.count("figure") == tags.count("figcaption")
    assert tags.count("details") == tags.count("summary")
    assert tags.count("table") == sum(attributes.get("role") == "region" for _tag, attributes in page.tags) - len(
        page.elements("svg")
    )
    return page


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_report_consists_of_html_page_json_and_plots(tmp_path: Path) -> None:
    directory = write_record(tmp_path / "runs", nodes=2, gpus=2)
    node = directory / "logs" / "node0"
    write_events(node / "events.out.tfevents.1", "train/loss", [2.0, 1.0, 0.5])
    (node / "nvidia-smi.txt").write_text("NVIDIA-SMI 550\n<b>")
    rank_directory = node / "ranks" / "0"
    rank_directory.mkdir(parents=True)
    (rank_directory / "stdout.log").write_text("View run at https://wandb.ai/team/x/runs/1\n")
    for private in (directory, tmp_path / "logbook"):  # as earlier releases wrote them
        private.mkdir(exist_ok=True)
        private.chmod(0o755)
    content, report = written(directory)
    assert [mode_of(path) for path in (directory, tmp_path / "logbook")] == [0o700, 0o700]
    for path in (directory / "report.html", directory / "report.json", tmp_path / "logbook" / "README.md"):
        assert mode_of(path) == 0o600, path
    page = check_page(content)
    assert len(page.elements("svg")) == 5
    for word in ("first succeeded after 0:10:00: 2 nodes, world size 4", "train/loss", "GPU utilization", "3.33 USD"):
        assert word in page.text
    assert f"tensorboard --logdir {directory}/logs --port 6006" in page.text
    assert f"ssh -N -L 6006:localhost:6006 {getpass.getuser()}@{socket.gethostname()}\n" in page.text
    assert "NVIDIA-SMI 550\n<b>" in page.text
    outputs = [path for path in (*directory.glob("*.*"), *(directory / "plots").iterdir()) if path.name != "plan.json"]
    for path in (*outputs, *(tmp_path / "logbook").iterdir()):
        assert b"secret-value" not in path.read_bytes(), f"{path}: of the environment the names are told"
    assert "HF_TOKEN" in page.text and "NCCL_SOCKET_IFNAME" not in page.text, "only the user's variables"
    assert [item["href"] for item in page.elements("a")] == ["https://wandb.ai/team/x/runs/1"]
    numbers = json.loads((directory / "report.json").read_text())
    assert numbers["version"] == 1
    assert numbers == {**json.loads(json.dumps(report)), "curves": numbers["curves"]}
    assert [curve["points"] for curve in numbers["curves"]] == [[]]
    assert len(json.loads((directory / "curves.json").read_text())[0]) == 3
    names = {path.name for path in (directory / "plots").iterdir()}
    assert {"curve-01.svg", "curve-01.png", "curve-01.vl.json", "gpu-power.svg"} <= names
    (directory / "plots" / "curve-07.svg").write_text("of an earlier report")
    (directory / "plots" / "mine.txt").write_text("of the user")
    written(directory)
    assert {path.name for path in (directory / "plots").iterdir()} == names | {"mine.txt"}


def hostile_record(runs: Path) -> Path:
    """Write a record in which every field that can contain text contains something hostile."""
    failure: dict[str, Any] = {"node": HOSTILE, "node_rank": 0, "rank": 0, "log": HOSTILE}
    failure |= {"error": HOSTILE + "y" * 1_000_000, "last_lines": [f"{MOUNT} {HOSTILE}", "y" * 1_000_000, 7, None]}
    document: dict[str, Any] = {
        HOSTILE: 1.5,
        "text": HOSTILE,
        "long": "z" * 1_000_000,
        "samples_per_second": 1e308,
        "big": 10**400,
    }
    directory = write_record(
        runs,
        LONGEST_ID,
        result={"state": "failed", "reason": HOSTILE, "first_failure": failure, "job_results": document},
        plan={
            "launcher": HOSTILE,
            "command": ["python3", f"{HOSTILE}.py", HOSTILE, f"--{HOSTILE}"],
            "working_directory": HOSTILE,
            "environment": {HOSTILE: "value"},
            "currency": "<b>|",
            "code": {"commit": HOSTILE, "dirty": 1},
        },
    )
    plan, result = (json.loads((directory / name).read_text()) for name in ("plan.json", "result.json"))
    plan["nodes"][0] |= {"name": HOSTILE, "address": HOSTILE, "hardware": {"gpu": HOSTILE, "gpus": [HOSTILE]}}
    result["nodes"][0] |= {"name": HOSTILE, "state": HOSTILE, "mounts": {HOSTILE: HOSTILE}, "stuck": [HOSTILE]}
    (directory / "plan.json").write_text(json.dumps(plan))
    (directory / "result.json").write_text(json.dumps(result))
    node = directory / "logs" / "node0"
    write_events(node / "events.out.tfevents.1", HOSTILE, [1.0, float("nan"), float("inf"), 2.0])
    (node / "nvidia-smi.txt").write_text(HOSTILE + "w" * 1_000_000)
    gpu, own_row = f"0, {HOSTILE}, Enabled\n", f"{HOSTILE}, 7, 1e99, -1, 999999999, 1e8\n"
    foreign_row = f"{HOSTILE}, {HOSTILE}, 1, 1, 1, 1\n"
    (node / "accounting.csv").write_text(gpu + foreign_row + gpu + own_row + foreign_row + "x" * 1_000_000)
    (node / "job_results.jsonl").write_text(
        "".join(json.dumps({HOSTILE: item, "ok": item}) + "\n" for item in range(3))
    )
    samples = (node / "gpus.csv").read_text()
    own_row, timed_row = (
        ", ".join([HOSTILE] * 8),
        f"{samples.splitlines()[1].partition(',')[0]}, {HOSTILE}, 1, 1, 1, 1, 1, 1",
    )
    (node / "gpus.csv").write_text(f"{HOSTILE}\n{samples}{own_row}\n{timed_row}\n" + "u" * 1_000_000 + f"\n{HOSTILE}")
    with (node / "metrics.csv").open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["step", f"csv {HOSTILE}", "t" * 1_000_000])
        table.writerow(["step", f"csv {HOSTILE}"])
        table.writerows([[step, value] for step, value in enumerate([HOSTILE, 1, "nan", 2, "1e999"])])
    rank_directory = node / "ranks" / "0"
    rank_directory.mkdir(parents=True)
    (rank_directory / "stdout.log").write_text(
        f"View run at https://wandb.ai.evil.example/{'a' * 100}\n{HOSTILE}\n" + "v" * 1_000_000
    )
    with (node / "events.jsonl").open("a") as stream:
        stream.write(json.dumps({"time": START, "event": "shrink", "text": HOSTILE}) + "\n")
    return directory


def test_hostile_text_from_nodes_and_jobs_is_shown_as_text(tmp_path: Path) -> None:
    directory = hostile_record(tmp_path / "runs")
    content, report = written(directory)
    page = check_page(content)
    assert not page.elements("b") and not page.elements("a")
    assert "<script>alert(1)</script>" in page.text  # shown as text
    assert "{{ 7*7 }}" in page.text and "\x1b" not in content and "\u202e" not in content
    assert len(content) < 500_000
    assert f"https://wandb.ai.evil.example/{'a' * 100}" in page.text  # reported, but not followed
    for path in (tmp_path / "logbook").iterdir():
        text = path.read_text()
        # code blocks are shown verbatim; elsewhere, no tag, link or additional cell begins
        outside = "".join(text.split("```")[::2])
        assert "<script" not in outside and "\x1b" not in text
        assert not re.search(r"(?<!\\)\]\(http", outside)
        for line in outside.splitlines():
            if line.startswith("| "):
                assert line.replace("\\|", "").count("|") in (3, 7, 9, 10, 11), line
    numbers = (directory / "report.json").read_text()
    assert not re.search(r"\\u00[01]|\\u202e|\\n", numbers) and len(numbers) < 100_000
    assert "<script>alert(1)</script>|`*" in json.loads(numbers)["verdict"]  # shown as text
    assert [gpu["samples"] for gpu in report["gpus"]] == [41]
    assert [(curve["source"], curve["values"]) for curve in report["curves"] if "csv" in curve["name"]] == [
        ("node0/metrics.csv", 2)
    ]
    assert report["run_id"] == LONGEST_ID
    assert report["failure"] is not None and report["failure"]["cause"] is not None
    assert [(item["pid"], item["utilization_percent"]) for item in report["processes"]] == [(7, None)]


def test_a_page_of_64_gpus_stays_below_2_mb(tmp_path: Path) -> None:
    def sample(node: int, gpu: int, second: float) -> Sample:
        noise = hash((node, gpu, second))  # a hash of numbers is the same in each process
        return (noise % 101, noise % 40000, 40 + noise % 45, noise % 400)

    directory = write_record(tmp_path / "runs", nodes=8, gpus=8, seconds=3600, sample=sample)
    for location in range(13):
        write_events(
            directory / "logs" / "node0" / f"{location}" / "events.out.tfevents.1",
            f"c{location}",
            [1.0, 3.0, 2.0] * 400,
        )
    content, report = written(directory)
    assert len(report["gpus"]) == 64
    assert len(check_page(content).elements("svg")) == 4 + 12
    assert len(content.encode()) < 2_000_000


def test_report_without_vl_convert_lacks_only_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    directory = write_record(tmp_path / "runs", nodes=1, gpus=2)
    content, _report = written(directory)
    page = check_page(content)
    assert page.elements("svg") == []
    assert "pip install 'vl-convert-python>=1.9,<2'" in page.text
    assert "gpu0 GPU 1" in page.text
    assert {path.name.partition(".")[2] for path in (directory / "plots").iterdir()} == {"vl.json"}
    assert "![" not in next((tmp_path / "logbook").glob("*first.md")).read_text()


def test_log_book_keeps_text_of_the_user(tmp_path: Path) -> None:
    runs, book = tmp_path / "runs", tmp_path / "logbook"
    older = write_record(runs, "older", result={"started": START - 86400 * 3, "ended": START - 86400 * 3 + 60})
    newer = write_record(runs, "newer")
    (runs / "latest").symlink_to("newer")
    (runs / "dropped").mkdir()
    written(older)
    written(newer)
    index = book / "README.md"
    lines = [line for line in index.read_text().splitlines() if line.startswith("| 2")]
    assert [line.split("|")[2].strip() for line in lines] == [
        f"[newer]({logbook.format_date(START)}-newer.md)",
        f"[older]({logbook.format_date(START - 86400 * 3)}-older.md)",
    ]
    mine = "\nTried a larger batch.\n<!-- notes -->\nüber | `code`\n"
    for path in (index, book / f"{logbook.format_date(START)}-newer.md"):
        path.write_text(path.read_text().partition("<!-- notes -->\n")[0] + "<!-- notes -->\n" + mine)
    written(newer)
    for path in (index, book / f"{logbook.format_date(START)}-newer.md"):
        assert path.read_text().endswith("<!-- notes -->\n" + mine)
        assert path.read_text().count(mine) == 1
    page = (book / f"{logbook.format_date(START)}-newer.md").read_text()
    assert "](../runs/newer/report.html)" in page and "](../runs/newer/plots/gpu-power.svg)" in page


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("batch_size of my_model_2", "batch_size of my_model_2"),
        ("_x_ *y* `z` ~a~ $b$", "\\_x\\_ \\*y\\* \\`z\\` \\~a\\~ \\$b\\$"),
        ("a|b\nc\\", "a\\|b c\\\\"),
        ("# title", "\\# title"),
        ("1. one", "1\\. one"),
        ("12.4", "12.4"),
        ("<b> & [x](y)", "&lt;b&gt; &amp; \\[x\\](y)"),
        ("https://evil.example www.evil.example", "https\\://evil.example www\\.evil.example"),
    ],
)
def test_markdown_is_escaped_and_plain_text_is_not(text: str, escaped: str) -> None:
    assert logbook.escape(text) == escaped


def test_code_block_fence_is_longer_than_any_fence_inside() -> None:
    first, *_lines, last = logbook.code_block("a\n```\n````\nb")
    assert first == last == "`````"


def test_log_book_shows_the_last_values_of_curves_if_nothing_else_was_reported(tmp_path: Path) -> None:
    runs, book = tmp_path / "runs", tmp_path / "logbook"
    curves = write_record(runs, "curves", result={"job_results": {}})
    write_events(curves / "logs" / "node0" / "events.out.tfevents.1", "loss", [3.0, 2.5])
    written(curves)
    (row,) = [line for line in (book / "README.md").read_text().splitlines() if line.startswith("| 2")]
    assert row.split("|")[6].strip() == "loss 2.5"


def test_log_book_keeps_the_directory_of_a_job_with_many_arguments(tmp_path: Path) -> None:
    command = ["python3", "train.py", *(f"--option-{number}=1" for number in range(40))]
    written(write_record(tmp_path / "runs", "long", plan={"command": command, "working_directory": "/home/me/nanoGPT"}))
    (row,) = [line for line in (tmp_path / "logbook" / "README.md").read_text().splitlines() if line.startswith("| 2")]
    job = row.split("|")[4].strip()
    assert job.startswith("train.py --option-0=1 ") and job.endswith("… in nanoGPT")


def test_comparison_shows_differences_first(tmp_path: Path) -> None:
    runs, book = tmp_path / "runs", tmp_path / "logbook"
    command = ["python3", "train.py", "--lr", "2e-3", "--epochs", "3"]
    document = {"checkpoint": f"/{'long/' * 50}last.pt"}
    item = write_record(runs, "one", plan={"command": [*command, "--warm"]}, result={"job_results": document})
    command[3] = "1e-3"
    two = write_record(runs, "two", nodes=2, plan={"command": command}, result={"job_results": {"f1": 0.75}})
    for directory, values in ((item, [3.0, 2.0, 1.0]), (two, [3.0, 1.0])):
        write_events(directory / "logs" / "node0" / "events.out.tfevents.1", "loss", values)
    page, reason = write_comparison([item, two], book, None, START)
    assert (page, reason) == (book / "comparison-one-two" / "report.html", "")
    result = check_page(page.read_text())
    assert is_current(item) and (two / "report.html").exists()
    text = result.text
    assert text.index("Settings that differ") < text.index("Metrics") < text.index("Time") < text.index("Cost")
    settings = text[text.index("Settings that differ") : text.index("Metrics")]
    assert "--lr" in settings and "--warm" in settings and "nodes" in settings
    assert "--epochs" not in settings and "driver" not in settings
    assert "global batch" in settings
    # a path among the numbers would make the table too wide
    assert f"<td>{document['checkpoint']}</td>" in page.read_text() and '<td class="n">0.75</td>' in page.read_text()
    assert [item["aria-label"][:12] for item in result.elements("svg")] == ["loss by step", "loss by time"]
    assert {path.name for path in (page.parent / "plots").glob("*.svg")} == {
        "curve-01-by-step.svg",
        "curve-01-by-time.svg",
    }
    assert not is_current(write_record(runs, "three"))
    assert write_comparison([item, two], book, tmp_path / "mine", START)[0] == tmp_path / "mine" / "report.html"


def test_comparison_lists_files_of_the_code_that_differ(tmp_path: Path) -> None:
    runs = [write_record(tmp_path / "runs", name, plan={"program_sha256": name * 20}) for name in ("one", "two")]
    page = write_comparison(runs, tmp_path / "logbook", None, START)[0]
    text = check_page(page.read_text()).text
    settings = text[text.index("Settings that differ") : text.index("Metrics")]
    assert "content of the script" in settings and "oneoneoneone" in settings
    assert (
        "It is unknown whether code other than the script differs, since it is not in the record of one, two"
        in settings
    )
    for run, content in zip(runs, ("1111 executable", "2222"), strict=True):
        files = {"train.py": content, "data.py": "3333", f"{HOSTILE.replace('//', '/')}.py": content}
        (run / "code.json").write_text(json.dumps({"source": "/code", "files": files}))
    page = write_comparison(runs, tmp_path / "logbook", None, START)[0]
    text = check_page(page.read_text()).text
    settings = text[text.index("Settings that differ") : text.index("Metrics")]
    assert "code" in settings and "3 files" in settings and "unknown" not in settings
    files_text = settings[settings.index("Files of the code that differ") :]
    assert "train.py" in files_text and "1111" in files_text and "2222" in files_text and "data.py" not in files_text


def test_equal_runs_without_recorded_code_are_not_reported_as_equal(tmp_path: Path) -> None:
    runs = [write_record(tmp_path / "runs", name) for name in ("one", "two")]
    text = check_page(write_comparison(runs, tmp_path / "logbook", None, START)[0].read_text()).text
    assert "None of the recorded settings differ" in text
    assert "It is unknown whether code differs, since it is not in the record of one, two" in text


def test_comparison_name_is_short_and_unique_for_many_runs() -> None:
    many = [f"{LONGEST_ID[:60]}{number}" for number in range(20)]
    assert len(comparison_name(many)) < 130
    assert comparison_name(many) != comparison_name(many[:19])


TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "/home/me/train.py", line 5, in <module>',
    "    train()",
    '  File "/home/me/train.py", line 3, in train',
    "\treturn 1 / 0",
    "           ~~^~~",
    "ZeroDivisionError: division by zero",
]


def failed_record(runs: Path, log: list[str], **more: Any) -> Path:
    """Write the record of a job without GPUs in which rank 1 failed."""
    path = "/home/me/.muster/runs/first/node0/ranks/x/attempt_0/1/stderr.log"
    failure = {"node": "gpu0", "node_rank": 0, "rank": 1, "log": path, "error": log[-1], "last_lines": []}
    directory = write_record(
        runs,
        gpus=0,
        result={"state": "failed", "first_failure": failure, "job_results": {}},
        plan={"variables": [], **more},
    )
    plan = json.loads((directory / "plan.json").read_text())
    for node in plan["nodes"]:
        node.update(hardware={"gpu": "", "gpus": 0}, price_per_hour=None)
    (directory / "plan.json").write_text(json.dumps(plan))
    copy = directory / "logs" / "node0" / "ranks" / "x" / "attempt_0" / "1" / "stderr.log"
    copy.parent.mkdir(parents=True)
    copy.write_text("\n".join(log) + "\n")
    return directory


def headings(content: str) -> list[str]:
    return re.findall("<h2>(.*?)</h2>", content)


def test_failed_run_begins_with_its_cause_and_complete_traceback(tmp_path: Path) -> None:
    earlier = [f"step {number}" for number in range(30)]
    middle = ["", "During handling of the above exception, another exception occurred:", ""]
    oom = [*TRACEBACK[:-1], OOM]
    directory = failed_record(tmp_path / "runs", [*earlier, *TRACEBACK, *middle, *oom])
    content, report = written(directory)
    page = check_page(content)
    assert headings(content) == ["What failed first", "The run", "Nodes", "Time", "Notes", "How to repeat it"]
    expected = [line.replace("\t", " " * 8) for line in [*TRACEBACK, *middle, *oom]]
    assert report["failure"] is not None and report["failure"]["lines"][-len(expected) :] == expected
    assert "\n".join(expected) in page.text
    for text in (f"gpu0, rank 1: {OOM}", "Cause: ", "What to do: use a smaller batch", "run_id=first -e rank=1"):
        assert text in page.text, text
    assert page.text.index("What failed first") < page.text.index("train.py --lr 1e-3 --batch_size=32")
    logbook_page = next((tmp_path / "logbook").glob("*first.md")).read_text()
    assert logbook_page.index("## What failed first") < logbook_page.index("train.py --lr 1e-3")
    assert "## Cost" not in logbook_page and "Not known" not in logbook_page
    assert f"| failed: {OOM} |" in (tmp_path / "logbook" / "README.md").read_text()


def test_failed_run_still_shows_its_curves_with_last_and_best_values(tmp_path: Path) -> None:
    directory = failed_record(tmp_path / "runs", TRACEBACK)
    log = directory / "logs" / "node0" / "ranks" / "x" / "attempt_0" / "0" / "stdout.log"
    log.parent.mkdir()
    log.write_text(
        "".join(f"step {step}: loss {value} acc 0.{step}\n" for step, value in ((1, 4.5), (2, 2.5), (3, 3.5)))
    )
    content, _report = written(directory)
    page = check_page(content)
    assert "Metrics" in headings(content)
    rows = re.findall(r"<tr><th scope=\"row\">(\w+)</th>(.*?)</tr>", content)
    cells = {name: re.findall(r">([^<]*)</td>", row) for name, row in rows}
    assert cells["loss"] == ["3.5", "3", "2.5", "2", "3"] and cells["acc"] == ["0.3", "3", "0.3", "3", "3"]
    assert "Last 3.5 at step 3; best (lowest) 2.5 about step 2; 4.5 at first, 3 values." in page.text
    spec = json.loads((directory / "plots" / "curve-01.vl.json").read_text())
    assert spec["layer"][0]["encoding"]["x"]["axis"] == {"tickMinStep": 1}


def test_run_without_metrics_shows_the_last_lines_of_rank_0_and_the_advice_once(tmp_path: Path) -> None:
    result: dict[str, Any] = {"state": "succeeded", "first_failure": None, "job_results": {}}
    directory = write_record(tmp_path / "runs", gpus=0, result=result)
    log = directory / "logs" / "node0" / "ranks" / "x" / "attempt_0" / "0" / "stdout.log"
    log.parent.mkdir(parents=True)
    log.write_text("Unable to locate sufficient 2 gpus to run this example. <b>Exiting.</b>\n")
    content, report = written(directory)
    page = check_page(content)
    assert report["last_lines"] == ["Unable to locate sufficient 2 gpus to run this example. <b>Exiting.</b>"]
    assert report["last_lines"][0] in page.text
    assert page.text.count("step 20: loss 0.31") == 1 and "here are no curves" not in page.text


def test_value_printed_once_is_shown_and_is_not_a_curve(tmp_path: Path) -> None:
    directory = failed_record(tmp_path / "runs", TRACEBACK)
    log = directory / "logs" / "node0" / "ranks" / "x" / "attempt_0" / "0" / "stdout.log"
    log.parent.mkdir()
    log.write_text("Epoch 0: loss=15.0497\n")
    content, report = written(directory)
    page = check_page(content)
    assert report["printed_once"] == [{"name": "loss", "value": 15.0497}] and report["last_lines"] == []
    assert "Metrics" in headings(content) and "printed once" in page.text
    assert "here are no curves: only one value of loss (15.05) was printed, and a curve needs two or more" in page.text
    assert "step 20: loss 0.31" not in page.text


def test_comparison_of_failed_runs_has_no_empty_sections(tmp_path: Path) -> None:
    runs = [failed_record(tmp_path / str(number) / "runs", TRACEBACK) for number in range(2)]
    page = write_comparison(runs, tmp_path / "logbook", None, START)[0]
    assert headings(page.read_text()) == ["Settings that differ", "Time"]


def test_overlong_log_keeps_both_ends_and_the_error_stays_short(tmp_path: Path) -> None:
    frames = [f"  frame {number}" for number in range(1000)]
    error = "RuntimeError: Error building extension 'x': " + "c++ " * 1000
    directory = failed_record(tmp_path / "runs", [TRACEBACK[0], *frames, error])
    _content, report = written(directory)
    assert report["failure"] is not None
    lines = report["failure"]["lines"]
    assert (len(lines), lines[0], lines[-2]) == (201, TRACEBACK[0], frames[-1])
    assert "... (802 lines) ..." in lines
    assert len(report["verdict"]) < 500


def test_commands_on_the_page_are_those_that_the_user_types(tmp_path: Path) -> None:
    directory = failed_record(tmp_path / "runs", [*TRACEBACK[:-1], "ModuleNotFoundError: No module named 'x'"])
    page = write_report(
        directory,
        tmp_path / "logbook",
        START,
        lambda text: text.replace("ansible-playbook launch.yml", "./muster launch"),
    ).page.read_text()
    assert "<code>./muster launch -e" in page


def test_reports_of_earlier_releases_stay_in_the_table_of_runs(tmp_path: Path) -> None:
    older, newer = write_record(tmp_path / "runs", "older"), write_record(tmp_path / "runs", "newer")
    written(older)
    numbers = json.loads((older / "report.json").read_text())
    del numbers["program"], numbers["variables"]
    (older / "report.json").write_text(json.dumps(numbers))
    written(newer)
    table = (tmp_path / "logbook" / "README.md").read_text()
    assert "older" in table and "newer" in table

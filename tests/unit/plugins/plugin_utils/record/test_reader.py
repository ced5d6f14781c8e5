# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading a record: regular files only, none outside its directory, and within the size limits."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._record import reader
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import RecordFiles, iter_lines, read_record
from tests.unit.plugins.plugin_utils.report.records import START, event, write_events, write_record


def names(directory: Path) -> list[str]:
    return [curve.name for curve in read_record(directory, directory.name).curves]


def test_links_are_not_followed_and_only_regular_files_are_opened(tmp_path: Path) -> None:
    directory = write_record(tmp_path / "runs")
    outside = tmp_path / "outside"
    write_events(outside / "events.out.tfevents.1", "stolen", [1.0, 2.0])
    (outside / "secret.json").write_text('{"a": 1}')
    node = directory / "logs" / "node0"
    (node / "linked").symlink_to(outside)
    (node / "events.out.tfevents.2").symlink_to(outside / "events.out.tfevents.1")
    (node / "linked.json").symlink_to(outside / "secret.json")
    (node / "metrics.csv").symlink_to("/dev/zero")
    os.mkfifo(node / "trainer_state.json")
    assert names(directory) == []
    files = RecordFiles(directory)
    assert files.read_json("logs/node0/linked.json") is None
    assert files.read_json("../outside/secret.json") is None
    assert files.read_json("logs/node0/linked/secret.json") is None
    assert files.read_json("logs/node0/trainer_state.json") is None
    assert files.read_head("logs/node0", 10) == ""


def test_curves_of_all_sources_are_read_from_any_directory(tmp_path: Path) -> None:
    directory = write_record(tmp_path)
    node = directory / "logs" / "node0"
    write_events(node / "deep" / "er" / "events.out.tfevents.1.host", "train/loss", [3.0, 2.0, 1.0])
    (node / "measured").mkdir()
    history = [{"step": 10, "loss": 2.5, "epoch": 1.0}, {"step": 20, "loss": 1.5}, {"train_runtime": 9.0}]
    (node / "measured" / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    (node / "metrics.csv").write_text("epoch,step,val_acc,train_loss\n0,1,,0.9\n0,2,0.5,\n1,3,,0.8\n")
    (node / "job_results.jsonl").write_text(
        '{"f1": 0.1, "once": 1}\nnot json\n{"f1": 0.2, "text": "x", "flag": true}\n'
    )
    result = {curve.name: curve for curve in read_record(directory, "first").curves}
    assert list(result["train/loss"].value) == [3.0, 2.0, 1.0]
    assert list(result["train/loss"].time) == [START, START + 1, START + 2]
    assert (list(result["loss"].step), list(result["loss"].value)) == ([10, 20], [2.5, 1.5])
    assert (list(result["val_acc"].step), list(result["val_acc"].value)) == ([2], [0.5])
    assert (list(result["f1"].step), list(result["f1"].value)) == ([0, 2], [0.1, 0.2])
    assert set(result) == {"train/loss", "loss", "train_runtime", "val_acc", "train_loss", "f1"}


def test_non_numbers_are_not_points_but_their_first_step_is_recorded(tmp_path: Path) -> None:
    directory = write_record(tmp_path)
    node = directory / "logs" / "node0"
    (node / "trainer_state.json").write_text('{"log_history": [{"step": 5, "b": Infinity}, {"step": 9, "b": NaN}]}')
    (node / "metrics.csv").write_text("step,c,d\n1,0.5,text\n2,nan,\nnan,nan,\n")
    (node / "job_results.jsonl").write_text(
        '{"step": 8, "a": NaN}\n{"step": 7, "a": -Infinity}\n{"step": 6, "a": null}\n'
    )
    record = read_record(directory, "first")
    assert record.non_finite == {"a": 8.0, "b": 5.0, "c": 2.0}
    assert [(curve.name, list(curve.value)) for curve in record.curves] == [("c", [0.5])]


def test_final_summary_line_is_not_a_point_of_the_curve(tmp_path: Path) -> None:
    directory = write_record(tmp_path)
    messages = [
        {"step": 23, "accuracy": 0.5},
        {"step": 46, "accuracy": 0.75},
        {"accuracy": 0.8, "samples_per_second": 9},
    ]
    (directory / "logs" / "node0" / "job_results.jsonl").write_text(
        "".join(json.dumps(item) + "\n" for item in messages)
    )
    (curve,) = read_record(directory, "first").curves
    assert (curve.name, list(curve.step), list(curve.value)) == ("accuracy", [23, 46], [0.5, 0.75])


def test_restarted_job_continues_its_curves(tmp_path: Path) -> None:
    directory = write_record(tmp_path)
    node = directory / "logs" / "node0"
    for attempt in (1, 2):
        path = node / f"events.out.tfevents.{attempt}"
        path.write_bytes(event("loss", attempt, START, 1.0 / attempt) + b"cut")
    (curve,) = read_record(directory, "first").curves
    assert list(curve.value) == [1.0, 0.5]
    (node / "eval").mkdir()
    (node / "eval" / "events.out.tfevents.1").write_bytes(event("loss", 1, START, 3.0))
    assert sorted(names(directory)) == ["loss (node0)", "loss (node0/eval)"]


def test_longest_trainer_state_among_checkpoints_is_used(tmp_path: Path) -> None:
    directory = write_record(tmp_path)
    for step in (1, 2, 3):
        path = directory / "logs" / "node0" / f"checkpoint-{step}"
        path.mkdir()
        history = [{"step": item, "loss": 1.0 / item} for item in range(1, step + 1)]
        (path / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    (curve,) = read_record(directory, "first").curves
    assert (curve.name, len(curve.value)) == ("loss", 3)


def test_wandb_links_are_read_from_the_log_of_rank_0(tmp_path: Path) -> None:
    directory = write_record(tmp_path)
    for node, rank, text in (
        (0, 0, "wandb: \x1b[34mView run\x1b[0m warm-sun-7 at: https://wandb.ai/team/x/runs/abc12\n"),
        (0, 0, "View run at https://wandb.ai/team/x/runs/abc12\nView run at javascript:alert(1)\n"),
        (0, 1, "View run at https://wandb.ai/other\n"),
        (1, 0, "View run at https://wandb.ai/third\n"),
    ):
        path = directory / "logs" / f"node{node}" / "ranks" / "attempt_0" / str(rank)
        path.mkdir(parents=True, exist_ok=True)
        with (path / "stdout.log").open("a") as stream:
            stream.write(text)
    assert read_record(directory, "first").links == ["https://wandb.ai/team/x/runs/abc12"]


def test_end_of_the_first_failed_log_is_read_from_the_record(tmp_path: Path) -> None:
    log = "/home/u/.muster/runs/first/node1/ranks/x/0/stderr.log"
    failure = {"node": "gpu1", "node_rank": 1, "rank": 3, "error": "boom", "log": log}
    directory = write_record(tmp_path, nodes=2, result={"state": "failed", "first_failure": failure})
    assert read_record(directory, "first").failure_log == ""
    path = directory / "logs" / "node1" / "ranks" / "x" / "0"
    path.mkdir(parents=True)
    (path / "stderr.log").write_text("x" * 1_000_000 + "\nValueError: boom\n")
    assert read_record(directory, "first").failure_log.endswith("\nValueError: boom\n")
    for hostile in ("/node1/../../../token", "/node1//etc/passwd", "/node1/ranks/\0", 7, None):
        failure["log"] = hostile
        (directory / "token").write_text("a token")
        (directory / "result.json").write_text(json.dumps({"first_failure": failure}))
        assert read_record(directory, "first").failure_log == ""


def test_overlong_lines_and_text_beyond_the_limit_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"first\n" + b"x" * (3 * reader.MAX_LINE) + b"\nsecond\nhalf")
    with path.open("rb") as stream:
        assert list(iter_lines(stream, 1 << 30)) == ["first", "second"]
    with path.open("rb") as stream:
        assert list(iter_lines(stream, 6)) == ["first"]


def write_log(directory: Path, name: str, text: str, attempt: int = 0) -> None:
    log = directory / "logs" / "node0" / "ranks" / "first_x" / f"attempt_{attempt}" / name
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text, newline="")


def printed(directory: Path) -> dict[str, list[tuple[float, float]]]:
    curves = read_record(directory, directory.name).curves
    return {curve.name: list(zip(curve.step, curve.value, strict=True)) for curve in curves}


def test_metrics_printed_by_rank_0_become_curves(tmp_path: Path) -> None:
    directory = write_record(tmp_path)
    write_log(directory, "0/stdout.log", "step 1: loss 4.5\nstep 2: loss 3.5\n", attempt=9)
    write_log(directory, "0/stdout.log", "step 3: loss 2.5\n", attempt=10)
    write_log(directory, "0/stderr.log", "x" * 100_000 + "\r 1/9 [00:01, acc=0.5]\r 2/9 [00:02, acc=0.75]")
    write_log(directory, "1/stdout.log", "step 1: loss 9.5 reward 1.5\nstep 2: loss 9.5 reward 2.5\n")
    assert printed(directory) == {"loss": [(1, 4.5), (2, 3.5), (3, 2.5)], "acc": [(1, 0.5), (2, 0.75)]}


def test_launcher_log_is_read_if_ranks_have_no_logs(tmp_path: Path) -> None:
    directory = write_record(tmp_path)
    (directory / "logs" / "node0" / "launcher.log").write_text("step 1: loss 4.5\nstep 2: loss 3.5\n")
    assert printed(directory) == {"loss": [(1, 4.5), (2, 3.5)]}


def test_better_sources_replace_printed_metrics(tmp_path: Path) -> None:
    directory = write_record(tmp_path)
    write_events(directory / "logs" / "node0" / "events.out.tfevents.1", "train/loss", [3.0, 2.0])
    write_log(directory, "0/stdout.log", "step 1: loss 4.5 acc 0.5\nstep 2: loss 3.5 acc 0.75\n")
    assert set(printed(directory)) == {"train/loss", "acc"}


def test_patterns_of_the_plan_are_used_before_the_known_formats(tmp_path: Path) -> None:
    pattern = r"t=(?P<step>\d+) E (?P<energy>\S+) loss (?P<loss>\S+)"
    directory = write_record(tmp_path, plan={"metrics": [pattern, "(", 7]})
    write_log(directory, "0/stdout.log", "t=5 E -1.5 loss 2.5\nt=6 E -2.5 loss 1.5\n")
    assert printed(directory) == {"energy": [(5, -1.5), (6, -2.5)], "loss": [(5, 2.5), (6, 1.5)]}


def test_exponential_pattern_is_abandoned_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader.limited_time.__wrapped__, "__defaults__", (0.05, ()))  # type: ignore[attr-defined]
    directory = write_record(tmp_path, plan={"metrics": [r"(?P<a>(x+x+)+y)"]})
    write_log(directory, "0/stdout.log", "x" * 60 + "\nstep 1: loss 4.5\nstep 2: loss 3.5\n")
    record = read_record(directory, "first")
    assert [curve.name for curve in record.curves] == ["loss"]
    assert [note for note in record.notes if "launch_metrics take too long" in note]


def test_timm_and_ultralytics_tables_are_curves_but_other_tables_are_not(tmp_path: Path) -> None:
    directory = write_record(tmp_path)
    node = directory / "logs" / "node0"
    (node / "summary.csv").write_text("epoch,train_loss,eval_top1\n0,6.5,1.5\n1,5.5,9.5\n")
    (node / "results.csv").write_text("                  epoch,      train/box_loss\n   1,  1.5\n   2,  1.25\n")
    (node / "other").mkdir()
    (node / "other" / "results.csv").write_text("name,value\na,1\nb,2\n")
    assert printed(directory) == {
        "train_loss": [(0, 6.5), (1, 5.5)],
        "eval_top1": [(0, 1.5), (1, 9.5)],
        "train/box_loss": [(1, 1.5), (2, 1.25)],
    }

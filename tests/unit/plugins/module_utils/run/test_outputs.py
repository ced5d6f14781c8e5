"""Files that the job of a run has written on this node: listed, compared and sent."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import outputs as run_outputs
from tests.unit.supervised import Run, make_run


def make_run_with_files(tmp_path: Path, *files: str, outputs: tuple[str, ...] = ()) -> Run:
    """Create a run with files in its run directory; those that begin with / are in its working directory."""
    run = make_run(tmp_path / "runs", [["/bin/true"]], outputs=outputs)
    run.plans[0]["working_directory"] = str(tmp_path / "work")
    run.plans[0]["files"] = {"rules.json": "{}"}
    for name in ("plan.json", *files):
        path = tmp_path / "work" / name[1:] if name.startswith("/") else run.node(0) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(run.plans[0]) if name == "plan.json" else name)
    return run


def listed_names(run: Run, *more: str) -> list[str]:
    reply = run_outputs.main(run.request(0, operation="tell", outputs=list(more)))
    assert reply["node_rank"] == 0 and not reply["incomplete"]
    return [file["name"] for file in reply["files"]]


def test_job_files_in_the_run_directory_are_listed_without_musters_own_files(tmp_path: Path) -> None:
    own_files: tuple[str, ...] = (
        "launcher.log",
        "nccl.a.1.log",
        "ranks/0/stdout.log",
        "bin/ssh",
        "token",
        "environment.json",
        "gpus.csv",
    )
    own_files += (
        "supervisor.py",
        "status.json",
        "rules.json",
        "job_results.jsonl",
        "nvidia-smi.txt",
        ".cache/hub/model",
        "a.tmp",
    )
    own_files += ("requeue/token", "requeue/environment.json", "earlier/0/ranks/0.log", "join.json", "notice.json")
    run = make_run_with_files(
        tmp_path, *own_files, "checkpoints/last.pt", "measured/a.json", "model.bin", "deep/launcher.log"
    )
    (run.node(0) / "link.pt").symlink_to(run.node(0) / "token")
    os.mkfifo(run.node(0) / "pipe")
    assert listed_names(run) == [
        "run/model.bin",
        "run/checkpoints/last.pt",
        "run/deep/launcher.log",
        "run/measured/a.json",
    ]


def test_declared_and_requested_outputs_elsewhere_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    scratch = tmp_path / "home" / "scratch"
    scratch.mkdir(parents=True)
    (scratch / "x.pt").write_text("x")
    (tmp_path / "linked").symlink_to(scratch)
    run = make_run_with_files(
        tmp_path, "/out/a.pt", "/out/deep/b.pt", "/other/c.pt", "/other/c.txt", outputs=("out", "gone", "out/")
    )
    assert listed_names(run) == ["work/out/a.pt", "work/out/deep/b.pt"]
    assert listed_names(run, "**/*.pt", "out") == ["work/out/a.pt", "work/out/deep/b.pt", "work/other/c.pt"]
    assert listed_names(run, "~/scratch")[-1] == f"root{scratch}/x.pt"
    assert listed_names(run, str(tmp_path / "linked"))[-1] == f"root{tmp_path}/linked/x.pt", (
        "a link that is named itself"
    )
    assert listed_names(run, str(run.node(0)), str(tmp_path)).count("root" + str(run.node(0) / "plan.json")) == 0


def test_other_files_that_changed_in_the_working_directory_are_counted(tmp_path: Path) -> None:
    names = (
        "supervisor.py",
        "/out/a.pt",
        "/logs/a/x.pt",
        "/logs/y.csv",
        "/model.bin",
        "/src/__pycache__/a.pyc",
        "/.git/x",
    )
    run = make_run_with_files(tmp_path, *names, "/code/train.py", outputs=("out",))
    os.utime(tmp_path / "work" / "code" / "train.py", (1.0, 1.0))  # as copied before the run
    reply = run_outputs.main(run.request(0, operation="tell", outputs=[]))
    assert reply["unlisted"] == {"logs": 2, "model.bin": 1}
    assert run_outputs.main(run.request(0, operation="tell", outputs=["logs"]))["unlisted"] == {"model.bin": 1}


@pytest.mark.parametrize(("state", "counted"), [("succeeded", 1), ("running", 2)])
def test_files_that_changed_after_the_run_are_not_counted(tmp_path: Path, state: str, counted: int) -> None:
    run = make_run_with_files(tmp_path, "supervisor.py", "/model.bin", "/later.bin")
    now = (run.node(0) / "supervisor.py").stat().st_mtime
    os.utime(tmp_path / "work" / "later.bin", (now + 60, now + 60))
    status = {"state": state, "message": "", "since": now + 20, "updated": now + 90}
    (run.node(0) / "status.json").write_text(json.dumps(status))
    reply = run_outputs.main(run.request(0, operation="tell", outputs=[]))
    assert len(reply["unlisted"]) == counted and "model.bin" in reply["unlisted"]


def test_node_without_the_run_lists_no_files(tmp_path: Path) -> None:
    run = make_run(tmp_path, [["/bin/true"]])
    reply = run_outputs.main(run.request(0, operation="tell", outputs=[]))
    assert (reply["node_rank"], reply["files"]) == (None, [])


def test_undecodable_file_names_are_omitted_and_flagged(tmp_path: Path) -> None:
    run = make_run_with_files(tmp_path, "good")
    Path(os.fsdecode(os.fsencode(run.node(0)) + b"/bad\xff")).write_text("x")
    reply = run_outputs.main(run.request(0, operation="tell", outputs=[]))
    assert [file["name"] for file in reply["files"]] == ["run/good"] and reply["incomplete"]


def test_listing_is_cut_at_the_limit_and_flagged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_outputs, "MAX_LISTED_FILES", 3)
    reply = run_outputs.main(make_run_with_files(tmp_path, *"abcde").request(0, operation="tell", outputs=[]))
    assert len(reply["files"]) == 3 and reply["incomplete"]


def test_files_are_compared_by_their_content(tmp_path: Path) -> None:
    run = make_run_with_files(tmp_path, "a", "/out/b")
    names = ["run/a", "work/out/b", "run/gone", "run/link"]
    (run.node(0) / "link").symlink_to(run.node(0) / "a")
    hashes = run_outputs.main(run.request(0, operation="compare", names=names))["hashes"]
    digests = [hashlib.sha256(text).hexdigest() for text in (b"a", b"/out/b")]
    assert hashes == dict(zip(names, [*digests, None, None], strict=True))


def part(file: dict[str, Any], offset: int, length: int) -> dict[str, Any]:
    return {**file, "offset": offset, "length": length}


def test_file_parts_are_sent_unless_the_file_was_removed_or_changed(tmp_path: Path) -> None:
    run = make_run_with_files(tmp_path, "0123456789", "empty")
    (run.node(0) / "empty").write_text("")
    reply = run_outputs.main(run.request(0, operation="tell", outputs=[]))
    digits, empty = sorted(reply["files"], key=lambda file: str(file["name"]))
    parts = [part(digits, 0, 4), part(digits, 4, 6), part(empty, 0, 0), part({**digits, "name": "run/gone"}, 0, 4)]
    sent = run_outputs.main(run.request(0, operation="hand_out", parts=parts))["parts"]
    assert [base64.b64decode(item["data"]) for item in sent[:3]] == [b"0123", b"456789", b""]
    assert sent[3] == {"problem": "No such file or directory"}
    os.utime(run.node(0) / "0123456789", ns=(5, 5))
    sent = run_outputs.main(run.request(0, operation="hand_out", parts=parts[:1]))["parts"]
    assert sent == [{"problem": "the file has changed since it was listed"}]

"""The files of a run that a node packs and omits."""

from __future__ import annotations

import base64
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import archive_selection
from ansible_collections.muster.training.plugins.module_utils._run import logs as run_logs
from tests.unit.supervised import Run, make_run


def write(path: Path, content: str | int) -> None:
    """Write a file with a text or with the given number of bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(content) if isinstance(content, int) else content.encode())


def finished(tmp_path: Path, *files: tuple[str, str | int], rank: int = 0) -> Run:
    """Create an ended run of two nodes, one of which has these files in its run directory."""
    run = make_run(tmp_path, [["/bin/true"], ["/bin/true"]])
    node = run.node(rank)
    write(node / "plan.json", json.dumps(run.plans[rank]))
    write(node / "status.json", '{"state": "succeeded", "message": "", "since": 1.0}')
    for name, content in files:
        write(node / name, content)
    return run


def packed(run: Run, what: str, rank: int = 0) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the files in the node's archive, and the omitted files."""
    reply = run_logs.pack(run.request(rank, selection=what))
    assert reply["last"] and not (run.node(rank) / "logs.tar.gz").exists(), "all of it comes in one call"
    assert reply["size"] == len(base64.b64decode(reply["data"]))
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(reply["data"]))) as tar:
        read = {member.name: tar.extractfile(member) for member in tar if member.isreg()}
        files = {name: stream.read() for name, stream in read.items() if stream is not None}
    assert all(name.startswith(f"node{rank}/") for name in files)
    return {name.partition("/")[2]: content for name, content in files.items()}, reply["left_out"]


MEASURED = (
    ("measured/loss.csv", "1,2\n"),
    ("measured/deep/down/any.thing", "x"),
    ("logs/version_0/metrics.csv", "step,loss\n"),
    ("out/checkpoint-5/trainer_state.json", "{}"),
    ("tb/events.out.tfevents.1.gpu0.2.0", "events"),
)
OWN_FILES = (
    ("gpus.csv", "a, b\n"),
    ("events.jsonl", "{}\n"),
    ("nvidia-smi.txt", "smi\n"),
    ("launcher.log", "step 7\n"),
)


@pytest.mark.parametrize("what", ["logs", "measured"])
def test_measurements_are_packed_but_weights_and_secrets_are_not(tmp_path: Path, what: str) -> None:
    excluded = (("out/checkpoint-5/model.bin", "weights"), ("token", "secret"), ("environment.json", "secret"))
    run = finished(tmp_path, *MEASURED, *OWN_FILES, *excluded)
    files, left_out = packed(run, what)
    for name, content in (*MEASURED, *OWN_FILES):
        assert files.pop(name) == str(content).encode()
    documents = {"plan.json", "status.json"} if what == "logs" else set()
    assert set(files) == documents | {"job_results.jsonl"}
    assert left_out == {"limit": 64 * 2**20, "limit_count": 10_000, "files": [], "count": 0, "size": 0}


def test_launcher_log_of_other_nodes_is_packed_only_with_logs(tmp_path: Path) -> None:
    files, _left_out = packed(finished(tmp_path, *OWN_FILES, ("measured/1.json", "{}"), rank=1), "measured", 1)
    assert set(files) == {"events.jsonl", "gpus.csv", "nvidia-smi.txt", "measured/1.json"}
    files, _left_out = packed(finished(tmp_path, *OWN_FILES, rank=1), "logs", 1)
    assert files["launcher.log"] == b"step 7\n"


def test_smallest_files_are_packed_first_if_over_the_limit_and_the_rest_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_selection, "MEASURED_LIMIT", 1000)
    sizes = {f"measured/{size}": size for size in (400, 300, 350, 5000)}
    run = finished(tmp_path, *sizes.items())
    files, left_out = packed(run, "measured")
    assert {name for name in files if name.startswith("measured/")} == {"measured/300", "measured/350"}
    omitted = [{"file": f"measured/{size}", "size": size, "retained": 0} for size in (400, 5000)]
    assert left_out == {"limit": 1000, "limit_count": 10_000, "files": omitted, "count": 2, "size": 5400}
    assert json.loads(files["left_out.json"]) == left_out


def test_only_the_end_of_a_long_rank_0_log_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_selection, "LOG_LIMIT", 100)
    run = finished(tmp_path, ("launcher.log", "".join(f"step {number:03}\n" for number in range(100))))
    files, left_out = packed(run, "measured")
    assert files["launcher.log"] == "".join(f"step {number:03}\n" for number in range(89, 100)).encode()
    assert left_out["files"] == [{"file": "launcher.log", "size": 900, "retained": 99}]


def test_end_of_a_single_long_line_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A progress bar has no line ends, until its last."""
    monkeypatch.setattr(archive_selection, "LOG_LIMIT", 100)
    files, left_out = packed(finished(tmp_path, ("launcher.log", "\rstep" * 200 + "\n")), "measured")
    assert files["launcher.log"] == (b"\rstep" * 200 + b"\n")[-100:]
    assert left_out["files"] == [{"file": "launcher.log", "size": 1001, "retained": 100}]


def test_links_are_not_followed_and_pipes_do_not_block(tmp_path: Path) -> None:
    run = finished(tmp_path, ("measured/good", "1"))
    (tmp_path / "else.csv").write_text("not the run's")
    measured = run.node(0) / "measured"
    os.mkfifo(measured / "pipe")
    (measured / "link").symlink_to(tmp_path / "else.csv")
    (measured / "loop").symlink_to(measured)
    (run.node(0) / "gpus.csv").symlink_to(tmp_path / "else.csv")
    os.mkfifo(run.node(0) / "events.jsonl")
    files, _left_out = packed(run, "measured")
    assert set(files) == {"job_results.jsonl", "measured/good"}


def test_curve_files_are_packed_from_the_declared_outputs(tmp_path: Path) -> None:
    run = finished(tmp_path / "runs", *OWN_FILES)
    run.plans[0].update(working_directory=str(tmp_path / "work"), outputs=["lightning_logs", str(tmp_path / "tb")])
    write(run.node(0) / "plan.json", json.dumps(run.plans[0]))
    write(tmp_path / "work/lightning_logs/version_0/metrics.csv", "step,loss\n")
    write(tmp_path / "work/lightning_logs/version_0/last.ckpt", "weights")
    write(tmp_path / "work/other/metrics.csv", "nobody has said so")
    write(tmp_path / "tb/events.out.tfevents.1", "events")
    files, _left_out = packed(run, "measured")
    assert {name for name in files if name.startswith("outputs/")} == {
        "outputs/work/lightning_logs/version_0/metrics.csv",
        f"outputs/root{tmp_path}/tb/events.out.tfevents.1",
    }


def test_search_of_a_huge_directory_stops_at_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_selection, "MAX_SCANNED_FILES", 20)
    run = finished(tmp_path, *((f"measured/{number}", "x") for number in range(50)))
    assert len(archive_selection.measured_files(str(run.node(0)), run.plans[0], False)) < 20


def test_packing_a_live_run_omits_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results that the run reports later count too."""
    run = finished(tmp_path, ("launcher.log", 'MUSTER_RESULT {"loss": 2}\n'))
    monkeypatch.setattr(run_logs, "is_alive", lambda _directory: True)
    assert "job_results.jsonl" not in packed(run, "logs")[0]


def test_curves_in_the_working_directory_are_packed(tmp_path: Path) -> None:
    run = finished(tmp_path, ("supervisor.py", ""))
    work = tmp_path / "project"
    plan = {**run.plans[0], "working_directory": str(work)}
    write(run.node(0) / "plan.json", json.dumps(plan))
    written = (
        "logs/csv/version_0/metrics.csv",
        "out/checkpoint-10/trainer_state.json",
        "runs/events.out.tfevents.1.a.2",
    )
    for name in (*written, "out/model.bin", "data/train.csv", "old/metrics.csv"):
        write(work / name, "x")
    (work / "linked.csv").symlink_to(tmp_path / "outside.csv")
    os.utime(work / "old" / "metrics.csv", (1.0, 1.0))
    files, _left_out = packed(run, "measured")
    assert {name for name in files if name.startswith("outputs/")} == {f"outputs/work/{name}" for name in written}
    (run.node(0) / "supervisor.py").unlink()
    files, _left_out = packed(run, "measured")
    assert not any(name.startswith("outputs/") for name in files), "when the run began is unknown"

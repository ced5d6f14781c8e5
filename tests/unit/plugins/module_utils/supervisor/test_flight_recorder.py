"""Files of torch's flight recorder: genuine files of torch, and files that a job may have substituted.

The recorded files are torch 2.11's: of NCCL 2.28 with four ranks on an H200, by tests/jobs/nccl_hangs.py, and of gloo.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._supervisor import flight_recorder
from ansible_collections.muster.training.plugins.module_utils._supervisor.flight_recorder import read_operations
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs import flight_reader
from ansible_collections.muster.training.plugins.plugin_utils._failures.flight_records import describe_operations
from tests.unit import supervised
from tests.unit.hostile import BAD_FILES, make_bad_file
from tests.unit.supervised import end_by_force, free_port, make_run

DUMPS = Path(__file__).parents[3] / "fixtures" / "flight_recorder"
LONGEST = 120.0
NETWORK = supervised.own_network(176)
JOB = """
import os, shutil, sys
rank = os.environ["NODE_RANK"]
shutil.copy(os.path.join(sys.argv[1], "flight_recorder_rank_" + rank), os.environ["TORCH_FR_DUMP_TEMP_FILE"] + rank)
open("written-" + rank, "w").close()
while not all(os.path.exists("written-%d" % other) for other in range(4)):
    pass
sys.exit("Watchdog caught collective operation timeout")
"""


def plan(slots: int = 4) -> Any:
    return {"node": {"first_rank": 0, "slots": slots}}


@pytest.mark.parametrize(
    ("kind", "text", "ranks"),
    [
        (
            "loop",
            "flight recorder of default_pg: ranks 0-2 wait in all_reduce 4, "
            "rank 3 has completed all_reduce 3 and launched nothing since",
            [3],
        ),
        (
            "uneven",
            "flight recorder of default_pg: ranks 0-2 wait in all_reduce 11, "
            "rank 3 has completed all_reduce_barrier 11 and launched nothing since",
            [3],
        ),
        ("stopped", "flight recorder of default_pg: ranks 0-2 wait in all_reduce 4", []),
        (
            "gloo_loop",
            "flight recorder: ranks 0-1 wait in all_reduce 6, "
            "rank 2 has completed all_reduce 5 and launched nothing since",
            [2],
        ),
        ("gloo_uneven", "flight recorder: ranks 0-1 wait in all_reduce 6, rank 2 waits in barrier 6", [2]),
    ],
)
def test_dumps_show_the_current_operation_of_each_rank(kind: str, text: str, ranks: list[int]) -> None:
    assert describe_operations(read_operations(str(DUMPS / kind), plan(), 0.0, LONGEST)) == (text, ranks)


def test_dump_of_an_earlier_attempt_is_not_read(tmp_path: Path) -> None:
    shutil.copytree(DUMPS / "loop", tmp_path, dirs_exist_ok=True)
    for rank in range(4):
        os.utime(tmp_path / f"{flight_recorder.FILE}{rank}", (1000, 1000 + rank))
    assert {row["rank"] for row in read_operations(str(tmp_path), plan(), 1002.0, LONGEST)} == {2, 3}


def test_only_ranks_of_this_node_are_read() -> None:
    assert {row["rank"] for row in read_operations(str(DUMPS / "loop"), plan(2), 0.0, LONGEST)} == {0, 1}


class Harmful:
    """A pickle that runs a command when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("harm",)


HOSTILE = {
    "code": pickle.dumps({"entries": [Harmful()]}),
    "no dump": pickle.dumps(7),
    "no entries": pickle.dumps({"entries": [{"process_group": 1}, {"process_group": ("a", "b")}]}),
    "truncated": pickle.dumps({"entries": [{}] * 100})[:50],
    "large memo": b"\x80\x02r\xff\xff\xff\x7f.",
    "nested": b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
    "empty": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_file_not_written_by_torch_is_treated_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{flight_recorder.FILE}0").write_bytes(HOSTILE[name])
    assert read_operations(str(tmp_path), plan(1), 0.0, LONGEST) == []
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_file_is_treated_as_missing(tmp_path: Path, kind: str) -> None:
    make_bad_file(tmp_path / f"{flight_recorder.FILE}0", kind)
    assert read_operations(str(tmp_path), plan(1), 0.0, LONGEST) == []


def test_reader_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(DUMPS / "loop", tmp_path, dirs_exist_ok=True)
    slow = tmp_path / "slow.py"
    slow.write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr(flight_reader, "__file__", str(slow))
    assert read_operations(str(tmp_path), plan(), 0.0, 0.1) == []
    assert not [name for name in os.listdir("/proc") if name.isdigit() and str(slow) in command_line(name)]


def command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
    except OSError:
        return ""


def test_reader_does_not_import_musters_modules() -> None:
    """The interpreter is started with -I, so the program's directory is not on its path."""
    source = Path(str(flight_reader.__file__)).read_text(encoding="utf-8")
    assert "ansible_collections" not in source


def test_operations_of_all_nodes_reach_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "NETWORK", NETWORK)
    (tmp_path / "job.py").write_text(JOB)
    command = [sys.executable, str(tmp_path / "job.py"), str(DUMPS / "loop")]
    run = make_run(tmp_path, [command] * 4, lifeline_port=free_port(), master_port=free_port())
    run.set_constant("FLIGHT_RECORDER_TIMEOUT", LONGEST)
    try:
        run.start()
        reports = [node["report"] for node in run.result()["nodes"]]
        text, ranks = describe_operations([row for report in reports for row in report["operations"]])
        assert text.startswith("flight recorder of default_pg: ranks 0-2 wait in all_reduce 4, rank 3 has completed")
        assert ranks == [3]
    finally:
        end_by_force(run)

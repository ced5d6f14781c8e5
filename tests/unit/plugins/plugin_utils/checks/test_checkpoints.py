"""Findings of a launch about its job's checkpoints: real checkpoints, described as a node describes them."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.action.launch_plan import job_contract, render_contract
from ansible_collections.muster.training.plugins.module_utils._checkpoints.find import find_checkpoints
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import HostSpec, build_rank_table
from ansible_collections.muster.training.plugins.plugin_utils._plan.checkpoint_contract import (
    checkpoint_to_resume,
    describe_contract,
    kept_checkpoints,
    read_contract,
    resumes,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.save_interval import (
    best_interval,
    format_duration,
    reported_seconds,
    seconds_to_failure,
)
from tests.unit.healthy import Facts, cluster, findings
from tests.unit.supervised import make_job

ARCHIVE = Path(__file__).resolve().parents[3] / "fixtures" / "checkpoints" / "checkpoints.tar.xz"
GIB = 2**30
NFS = {"point": "/mnt/n", "type": "nfs4", "source": "10.0.0.5:/x"}
DISK = {"point": "/", "type": "ext4", "source": "/dev/vda1"}


@pytest.fixture
def real(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path)  # our own archive; Debian's Python 3.11 has no filters
    return tmp_path


def described(path: Path, free: int = 50 * GIB, shared: bool = True, **more: Any) -> Facts:
    """Return the facts about a checkpoint directory, in the form that a node sends."""
    location = {"exists": True, "mount": NFS if shared else DISK, "remote": shared, "disk": {"free_bytes": free}}
    listing = json.loads(json.dumps(find_checkpoints(str(path))))
    return {
        "path": str(path),
        "source": "--output_dir",
        "location": location,
        "listing": listing,
        "service": None,
        **more,
    }


def reported(facts: dict[str, Facts], **job: Any) -> list[Any]:
    """Return the findings about checkpoints only; everything else is healthy."""
    return [finding for finding in findings(facts, **job) if finding.id.startswith("checkpoint")]


def everywhere(facts: Facts, count: int = 2) -> dict[str, Facts]:
    nodes = cluster(count)
    for node in nodes.values():
        node["checkpoints"] = {**json.loads(json.dumps(facts)), "machine": node["machine"]}
    return nodes


@pytest.mark.parametrize("name", ["transformers", "zero1", "zero3", "fsdp", "lightning", "deepspeed"])
def test_complete_checkpoints_on_a_shared_mount_cause_no_finding(real: Path, name: str) -> None:
    assert reported(everywhere(described(real / name))) == []


def test_directory_that_does_not_exist_yet_causes_no_finding(tmp_path: Path) -> None:
    assert reported(everywhere(described(tmp_path / "new"))) == []


def test_local_disk_is_named_with_both_remedies(tmp_path: Path) -> None:
    (finding,) = reported(everywhere(described(tmp_path / "new", shared=False)))
    assert (finding.severity, finding.id, finding.nodes) == ("warning", "checkpoint-node-local", ("node1", "node2"))
    assert f"{tmp_path}/new (--output_dir) is on the node's own disk" in finding.problem
    assert "docs/data.md" in finding.remedy and "checkpoints_bucket" in finding.remedy


def test_restarts_are_refused_if_checkpoints_are_lost_with_a_node(tmp_path: Path) -> None:
    nodes = everywhere(described(tmp_path / "new", shared=False))
    (finding,) = reported(nodes, restarts=2)
    assert (finding.severity, finding.id) == ("error", "checkpoint-node-local")
    assert finding.remedy.endswith("-e preflight_skip=checkpoint-node-local")
    assert reported(everywhere(described(tmp_path / "new")), restarts=2) == []


def test_restarts_without_checkpoints_are_a_warning() -> None:
    (finding,) = findings(cluster(2), restarts=2)
    assert (finding.severity, finding.id) == ("warning", "restart-no-checkpoint")
    assert findings(cluster(2), restarts=0) == []


@pytest.mark.parametrize("case", ["one node", "one machine", "bucket", "service", "all nodes have it"])
def test_local_disk_is_accepted_if_no_single_node_is_lost_or_checkpoints_are_copied(real: Path, case: str) -> None:
    facts = described(real / "transformers", shared=False)
    if case == "bucket":
        facts["path"] = "s3://bucket/x"
    if case == "service":
        facts["service"] = {"bucket": "b", "directory": str(real), "nodes": "first"}
    nodes = everywhere(facts, 1 if case == "one node" else 2)
    if case == "one machine":
        for node in nodes.values():
            node["machine"] = "boot net:1"
    if case != "all nodes have it":
        for node in nodes.values():
            node["checkpoints"]["listing"] = []
    assert [finding.id for finding in reported(nodes)] == []


def test_service_for_another_directory_is_ignored(tmp_path: Path) -> None:
    facts = described(tmp_path / "new", shared=False, service={"bucket": "b", "directory": "checkpoints"})
    assert [finding.id for finding in reported(everywhere(facts))] == ["checkpoint-node-local"]


@pytest.mark.parametrize(("share", "severity"), [(0.5, "error"), (1.5, "warning"), (4, None)])
def test_space_is_required_for_the_checkpoints_to_keep(real: Path, share: float, severity: str | None) -> None:
    size = find_checkpoints(str(real / "transformers"))[0]["size"]
    facts = everywhere(described(real / "transformers", free=int(size * share)))
    result = reported(facts, args=["--save_total_limit", "3"])
    assert [(finding.id, finding.severity) for finding in result] == (
        [("checkpoint-no-room", severity)] if severity else []
    )


def test_torn_checkpoint_names_the_older_complete_checkpoint(real: Path) -> None:
    torn = real / "transformers" / "checkpoint-4" / "optimizer.pt"
    torn.write_bytes(torn.read_bytes()[:5000])
    facts = everywhere(described(real / "transformers"))
    (finding,) = reported(facts)
    assert (finding.id, finding.severity) == ("checkpoint-torn", "warning")
    assert "optimizer.pt: it is truncated" in finding.problem
    assert "step 2 (checkpoint-2) is the newest complete checkpoint" in finding.problem
    path = real / "transformers" / "checkpoint-4"
    assert f"mv {path} {path}.torn" in finding.remedy
    (finding,) = reported(facts, args=["--resume_from_checkpoint", str(path)])
    assert finding.severity == "error"


def test_checkpoint_for_a_different_world_size_is_refused_with_the_conversion_command(real: Path) -> None:
    facts = everywhere(described(real / "zero1"), 4)
    (finding,) = reported(facts)
    assert (finding.id, finding.severity) == ("checkpoint-world-size", "warning")
    (finding,) = reported(facts, resume_args=["--load", "{checkpoint}"])
    assert finding.severity == "error"
    path = real / "zero1" / "global_step2"
    assert (
        f"ds_to_universal --inject_missing_state --input_folder {path} --output_folder {path}_universal"
        in finding.remedy
    )
    assert "the shards of 2 ranks, but this run has 4" in finding.problem


def test_parts_on_other_nodes_are_named_with_a_command(real: Path) -> None:
    nodes = everywhere(described(real / "zero1"))
    checkpoints = nodes["node2"]["checkpoints"]
    part = "mp_rank_00_model_states.pt"
    (real / "zero1" / "global_step2" / part).unlink()
    checkpoints["listing"] = described(real / "zero1")["listing"]
    (finding,) = reported(nodes, resume_args=["{checkpoint}"])
    assert (finding.id, finding.severity, finding.nodes) == ("checkpoint-parts-missing", "error", ("node2",))
    assert part in finding.problem
    path = real / "zero1" / "global_step2"
    assert f"stage_data_path={path} -e stage_data_destination={path}" in finding.remedy


def test_copy_command_works_on_nodes_without_the_directory(real: Path) -> None:
    nodes = everywhere(described(real / "zero1"))
    nodes["node1"]["checkpoints"]["listing"] = []
    (finding,) = reported(nodes, resume_args=["{checkpoint}"])
    path = real / "zero1" / "global_step2"
    assert f"ssh node2 tar -cC {path} . | ssh NODE 'mkdir -p {path} && tar -xkC {path}'" in finding.remedy


def test_run_does_not_resume_from_a_checkpoint_that_it_cannot_load(real: Path) -> None:
    contract = read_contract({"a": described(real / "zero1")})
    assert checkpoint_to_resume(contract, 2) == str(real / "zero1" / "global_step2")
    assert checkpoint_to_resume(contract, 4) == ""
    empty = described(real / "zero1")
    empty["listing"] = []
    assert checkpoint_to_resume(read_contract({"a": described(real / "zero1"), "b": empty}), 2) == ""


@pytest.mark.parametrize("value", [None, 7, "x", [], {}, {"name": "x"}, [[]]])
def test_hostile_listing_is_treated_as_empty(real: Path, value: Any) -> None:
    facts = described(real / "zero1")
    facts["listing"] = value if isinstance(value, list) else [value]
    assert read_contract({"a": facts}).choice["checkpoint"] is None


@pytest.mark.parametrize(
    "field", ["parts", "damaged", "required", "recorded", "step", "format", "saved", "size", "unit"]
)
def test_checkpoint_with_a_hostile_field_is_dropped(real: Path, field: str) -> None:
    facts = described(real / "zero1")
    for entry in facts["listing"]:
        entry[field] = {"x": {"y": "z"}}
    assert read_contract({"a": facts}).choice["checkpoint"] is None


def test_plan_line_describes_the_checkpoints(real: Path) -> None:
    contract = read_contract({"a": described(real / "zero1")})
    text = describe_contract(contract, 64, 8.0)
    assert text.startswith(f"{real}/zero1 (nfs4, 10.0.0.5:/x); survives the loss of a node; newest complete: step 2 (")
    assert "deepspeed, 2 ranks" in text
    assert text.endswith("saving takes 8 s: saving every 45 min loses the least time")
    local = read_contract({"a": described(real / "zero1", shared=False)})
    assert "(local disk); lost with the node; " in describe_contract(local, 64)
    assert describe_contract(read_contract({}), 64) == ""


def test_plan_shows_the_resume_arguments_of_the_job(real: Path) -> None:
    table = build_rank_table([HostSpec(name, f"10.0.0.{number}", 1) for number, name in enumerate("ab", 1)])
    replies = {name: {"facts": {"checkpoints": described(real / "zero1")}} for name in "ab"}
    contract = job_contract(table, replies)
    path = checkpoint_to_resume(contract, table.world_size)
    job = make_job(resume_args=("--load", "{checkpoint}"), checkpoint=path)
    assert render_contract(contract, job, table, None).splitlines()[-1] == f"  resumes      --load {path}"


def test_best_interval_follows_youngs_formula() -> None:
    assert round(best_interval(20, 7200)) == 537  # 9 minutes, for a spot machine that is lost every 2 hours
    assert round(seconds_to_failure(64) / 3600) == 125
    assert [format_duration(seconds) for seconds in (8, 537, 8000, 1e6)] == ["8 s", "9 min", "2 h 13 min", "277 h"]


def test_save_seconds_come_from_the_newest_run_of_the_same_program(tmp_path: Path) -> None:
    for number, (program, output) in enumerate(
        [("train.py", {"checkpoint_seconds": 9}), ("other.py", {"checkpoint_seconds": 1}), ("train.py", {}), ("x", 3)]
    ):
        record = tmp_path / f"run{number}"
        record.mkdir()
        (record / "plan.json").write_text(json.dumps({"program": program}))
        (record / "result.json").write_text(json.dumps({"job_results": output}))
    assert reported_seconds(tmp_path, "train.py") == 9
    assert reported_seconds(tmp_path, "missing.py") is None
    assert reported_seconds(tmp_path / "missing", "train.py") is None


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((), False),
        (("--resume",), True),
        (("--resume_from_checkpoint", "true"), True),
        (("--resume_from_checkpoint=false",), False),
        (("--ckpt_path=last",), True),
        (("--load_best_model_at_end", "true"), False),
        (("--model_path", "x"), False),
    ],
)
def test_arguments_that_resume_a_job_are_recognized(args: tuple[str, ...], expected: bool) -> None:
    assert resumes(make_job(args=args)) is expected


def test_number_of_checkpoints_kept_by_the_job_is_read() -> None:
    assert kept_checkpoints(make_job(args=("--save_total_limit=5",))) == 5
    assert kept_checkpoints(make_job(args=("--save_total_limit", "2"))) == 2
    assert kept_checkpoints(make_job(args=("--save_top_k", "-1"))) == 3


def test_lightning_file_on_one_node_is_copied_with_its_directory(real: Path) -> None:
    nodes = everywhere(described(real / "lightning"))
    shutil.rmtree(real / "lightning")
    nodes["node2"]["checkpoints"]["listing"] = []
    (finding,) = reported(nodes)
    assert (finding.id, finding.severity) == ("checkpoint-parts-missing", "warning")
    assert "version_0/checkpoints -e" in finding.remedy


@pytest.mark.parametrize("name", ["transformers", "zero1"])
def test_remedy_for_a_torn_checkpoint_works(real: Path, name: str) -> None:
    """Run the suggested commands: the next launch resumes from the older checkpoint without a finding."""
    first, second = find_checkpoints(str(real / name))
    damaged = Path(first["path"]) / max(first["parts"], key=lambda part: first["parts"][part])
    damaged.write_bytes(damaged.read_bytes()[:3000])
    (finding,) = reported(everywhere(described(real / name)))
    command = finding.remedy.removeprefix("rename it on each node with ").partition(", and resume from ")[0]
    subprocess.run(["/bin/sh", "-c", command], check=True)
    assert reported(everywhere(described(real / name))) == []
    assert find_checkpoints(str(real / name))[0]["path"] == second["path"]
    if name == "zero1":
        assert (real / name / "latest").read_text().strip() == second["name"]

"""The checkpoint from which several nodes can resume."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._checkpoints.choice import choose_checkpoint
from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import Checkpoint
from ansible_collections.muster.training.plugins.module_utils._checkpoints.find import find_checkpoints
from ansible_collections.muster.training.plugins.module_utils._checkpoints.resume import (
    attempt_environment,
    newest_local_checkpoint,
    resume_arguments,
)
from tests.unit.plugins.module_utils.checkpoints.test_find import ARCHIVE


class Cluster:
    """The directories of several nodes, which all start with every checkpoint."""

    def __init__(self, path: Path, kind: str, names: tuple[str, ...]) -> None:
        self.path, self.kind = path, kind
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(path / "all")  # our own archive; Debian's Python 3.11 has no filters
        for name in names:
            shutil.copytree(path / "all" / kind, path / name)
        self.names = names

    def listings(self) -> dict[str, list[Checkpoint]]:
        """Return the checkpoint listing of each node; all use the same path on their own disks."""
        return {name: find_checkpoints(str(self.path / name)) for name in self.names}


@pytest.fixture
def zero(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, "zero1", ("a", "b"))


OPTIM = "zero_pp_rank_{}_mp_rank_00_optim_states.pt"


def test_nodes_with_the_same_checkpoints_resume_from_the_newest(zero: Cluster) -> None:
    choice = choose_checkpoint(zero.listings())
    assert choice["checkpoint"] is not None
    assert choice["checkpoint"]["name"] == "global_step2"
    assert (choice["missing"], choice["torn"]) == ({}, [])


def test_shards_on_the_disk_of_each_node_are_complete_together(zero: Cluster) -> None:
    (zero.path / "a" / "global_step2" / OPTIM.format(1)).unlink()
    (zero.path / "b" / "global_step2" / OPTIM.format(0)).unlink()
    (zero.path / "b" / "global_step2" / "mp_rank_00_model_states.pt").unlink()
    choice = choose_checkpoint(zero.listings())
    assert choice["checkpoint"] is not None
    assert (choice["checkpoint"]["name"], choice["checkpoint"]["world_size"]) == ("global_step2", 2)
    assert choice["missing"] == {
        "a": {OPTIM.format(1): "b"},
        "b": {OPTIM.format(0): "a", "mp_rank_00_model_states.pt": "a"},
    }


def test_missing_part_selects_the_older_checkpoint(zero: Cluster) -> None:
    for node in zero.names:
        (zero.path / node / "global_step2" / OPTIM.format(1)).unlink()
    choice = choose_checkpoint(zero.listings())
    assert choice["checkpoint"] is not None
    assert choice["checkpoint"]["name"] == "global_step1"
    assert [entry["name"] for entry in choice["torn"]] == ["global_step2"]


def test_part_damaged_on_one_node_is_copied_from_another(zero: Cluster) -> None:
    (zero.path / "a" / "global_step2" / OPTIM.format(1)).write_bytes(b"PK")
    choice = choose_checkpoint(zero.listings())
    assert choice["checkpoint"] is not None
    assert choice["missing"] == {"a": {OPTIM.format(1): "b"}}


def test_different_files_with_the_same_name_are_not_a_checkpoint(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "transformers", ("a", "b"))
    state = tmp_path / "b" / "checkpoint-4" / "trainer_state.json"
    state.write_text(state.read_text() + " ")
    choice = choose_checkpoint(cluster.listings())
    assert choice["checkpoint"] is not None
    assert choice["checkpoint"]["name"] == "checkpoint-2"
    assert "trainer_state.json: it has different sizes on a and b" in choice["torn"][0]["reason"]


def test_random_states_of_other_ranks_are_not_copied(tmp_path: Path) -> None:
    """With save_on_each_node, each node has the random states of its own ranks."""
    cluster = Cluster(tmp_path, "transformers", ("a", "b"))
    (tmp_path / "a" / "checkpoint-4" / "rng_state_1.pth").unlink()
    (tmp_path / "b" / "checkpoint-4" / "rng_state_0.pth").unlink()
    choice = choose_checkpoint(cluster.listings())
    assert choice["checkpoint"] is not None
    assert (choice["checkpoint"]["world_size"], choice["missing"]) == (2, {})


def test_checkpoint_only_on_the_first_node_is_missing_on_the_other(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "lightning", ("a", "b"))
    shutil.rmtree(tmp_path / "b")
    choice = choose_checkpoint(cluster.listings())
    assert choice["checkpoint"] is not None
    assert choice["missing"] == {"b": {"": "a"}}


def test_no_checkpoint_is_chosen_if_none_is_complete(zero: Cluster) -> None:
    for node in zero.names:
        (zero.path / node / "latest").unlink()
    choice = choose_checkpoint(zero.listings())
    assert choice["checkpoint"] is None
    assert len(choice["torn"]) == 2


def test_attempt_gets_the_local_checkpoint_and_its_arguments(zero: Cluster) -> None:
    plan = {"checkpoints": str(zero.path / "a"), "world_size": 2}
    path = newest_local_checkpoint(plan)  # type: ignore[arg-type]
    assert path == str(zero.path / "a" / "global_step2")
    assert attempt_environment(2, path) == {"MUSTER_ATTEMPT": "2", "MUSTER_CHECKPOINT": path}
    assert resume_arguments(["--resume", "{checkpoint}"], path) == ["--resume", path]
    assert newest_local_checkpoint({}) == ""  # type: ignore[typeddict-item]
    assert newest_local_checkpoint({**plan, "world_size": 3}) == ""  # type: ignore[typeddict-item]
    assert attempt_environment(0, "") == {"MUSTER_ATTEMPT": "0"}
    assert resume_arguments(["--resume", "{checkpoint}"], "") == []

"""Detection of the checkpoint directory from a job's arguments and configuration files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._checkpoints.detect import detect
from ansible_collections.muster.training.plugins.module_utils._checkpoints.steps import step_of_name
from ansible_collections.muster.training.plugins.module_utils._facts.checkpoints import mount_of, name_directory


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (["--output_dir", "out", "--lr", "1"], "out"),
        (["--output-dir=out"], "out"),
        (["fit", "--trainer.default_root_dir", "/mnt/r"], "/mnt/r"),
        (["--trainer.callbacks.init_args.dirpath=/mnt/c", "--trainer.default_root_dir", "/mnt/r"], "/mnt/c"),
        (["trainer.default_root_dir=/mnt/r", "callbacks.model_checkpoint.dirpath=/mnt/c"], "/mnt/c"),
        (["--save_dir", "ds", "--output_dir", "out"], "ds"),
        (["--save", "/mnt/megatron", "--load", "/mnt/old"], "/mnt/megatron"),
        (["--output_dir", "a", "--output_dir", "b"], "b"),
        (["--output_dir", "--lr", "1"], ""),
        (["--output_dir=null"], ""),
        (["--output_dir=${hydra:run.dir}"], ""),
        (["--lr", "-1", "--save_steps", "10"], ""),
        ([], ""),
    ],
)
def test_arguments(tmp_path: Path, arguments: list[str], path: str) -> None:
    assert detect(arguments, str(tmp_path))[0] == path


def test_configuration_files(tmp_path: Path) -> None:
    text = "trainer:\n  default_root_dir: 'logs' # where\n  callbacks:\n    - dirpath: /mnt/ckpt\n# output_dir: no\n"
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "args.json").write_text(json.dumps({"training": [{"output_dir": "/mnt/json"}], "n": 3}))
    assert detect(["fit", "--config", "config.yaml"], str(tmp_path)) == ("/mnt/ckpt", "dirpath in config.yaml")
    assert detect(["args.json"], str(tmp_path)) == ("/mnt/json", "output_dir in args.json")
    assert detect(["--config", "config.yaml", "--output_dir", "x"], str(tmp_path)) == ("x", "--output_dir")


def test_hostile_configuration_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    (tmp_path / "b.json").write_text("[" * 10**5)
    (tmp_path / "c.yaml").write_bytes(b"output_dir: " + b"x" * 2**21)
    (tmp_path / "d.yaml").symlink_to("/dev/zero")
    (tmp_path / "e.yaml").write_text("output_dir: !!python/object/apply:os.system [ls]\nsave_dir: *anchor\n")
    for name in ("a.yaml", "b.json", "c.yaml", "d.yaml", "missing.yaml"):
        assert detect(["--config", name], str(tmp_path)) == ("", "")


@pytest.mark.parametrize(
    ("name", "step", "unit"),
    [
        ("checkpoint-500", 500, "step"),
        ("global_step20", 20, "step"),
        ("epoch=3-step=40.ckpt", 40, "step"),
        ("epoch_3.pt", 3, "epoch"),
        ("iter_0000100", 100, "step"),
        ("model_12.pth", 12, "step"),
        ("0001000", 1000, "step"),
        ("last.ckpt", None, "step"),
        ("llama-3-8b", None, "step"),
        ("version_3", None, "step"),
        ("stepsister", None, "step"),
    ],
)
def test_step_is_read_from_a_name(name: str, step: int | None, unit: str) -> None:
    assert step_of_name(name) == (step, unit)


def test_path_and_mount() -> None:
    assert name_directory("out", [], "/home/u/p", "/home/u") == ("/home/u/p/out", "launch_checkpoints")
    assert name_directory("~/out", [], "/home/u/p", "/home/u")[0] == "/home/u/out"
    assert name_directory("s3://b/x", [], "/home/u/p", "/home/u")[0] == "s3://b/x"
    assert name_directory("{run_directory}/c", [], "/p", "/h")[0] == "{run_directory}/c"
    assert name_directory("", ["--output_dir", "/x/../out"], "/p", "/h") == ("/out", "--output_dir")
    mounts = {"/": {"type": "ext4", "source": "/dev/a"}, "/mnt/n": {"type": "nfs4", "source": "s:/x"}}
    assert mount_of("/mnt/n/y", mounts) == {"point": "/mnt/n", "type": "nfs4", "source": "s:/x"}
    assert mount_of("/mnt/nothing", mounts)["type"] == "ext4"

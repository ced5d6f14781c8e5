"""Slurm jobs are identified only by the titles of root's processes."""

from __future__ import annotations

import os
from pathlib import Path

from ansible_collections.muster.training.plugins.module_utils._facts.slurm_jobs import read_slurm_jobs

TITLES = {
    "11": b"slurmstepd: [12.batch]\0",
    "12": b"slurmstepd: [12.0]\0",
    "13": b"slurmstepd: [7.extern]\0",
    "14": b"grep\0slurmstepd: [9.0]\0",
    "15": b"",
}


def test_each_job_is_listed_once(tmp_path: Path) -> None:
    for name, title in TITLES.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "cmdline").write_bytes(title)
    (tmp_path / "16").mkdir()  # a process that has just exited
    (tmp_path / "self").mkdir()
    assert read_slurm_jobs(str(tmp_path), os.getuid()) == ["7", "12"]
    assert read_slurm_jobs(str(tmp_path), os.getuid() + 1) == [], "a user's own process may have any title"

"""The strategies example resumes from checkpoints, under the real torchrun, with the losses of an uninterrupted run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
SIZE = ["--global-batch-size", "8", "--width", "32", "--layers", "2"]


def losses(strategy: str, ranks: int, *arguments: str) -> dict[int, float]:
    """Return the losses that the example prints, by step."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    script = str(CHECKOUT / "examples" / "strategies" / "train.py")
    completed = subprocess.run(
        [*command, script, "--strategy", strategy, *SIZE, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=900,
    )
    lines = [line for line in completed.stdout.splitlines() if line.startswith("MUSTER_RESULT ")]
    reports = [json.loads(line.partition(" ")[2]) for line in lines]
    return {report["step"]: report["loss"] for report in reports if "step" in report}


@pytest.mark.thorough  # molecule/recovery tests the loss of a node
@pytest.mark.parametrize(("strategy", "suffix"), [("ddp", ".pt"), ("fsdp", ""), ("zero1", ""), ("zero3", "")])
def test_resumed_training_has_the_same_losses_as_an_uninterrupted_run(
    tmp_path: Path, strategy: str, suffix: str
) -> None:
    saved = tmp_path / "saved"
    directory = ["--checkpoint-dir", str(saved)]
    unbroken = losses(strategy, 2, "--steps", "9", "--save-every", "3", *directory)
    assert list(unbroken) == list(range(1, 10))
    assert (saved / f"step-6{suffix}").exists()
    resumed = losses(strategy, 2, "--steps", "9", "--resume", str(saved / f"step-3{suffix}"), *directory)
    assert list(resumed) == list(range(4, 10))
    assert resumed == pytest.approx({step: unbroken[step] for step in resumed}, abs=2e-3)


@pytest.mark.thorough
def test_fsdp_resumes_with_another_number_of_ranks(tmp_path: Path) -> None:
    directory = ["--checkpoint-dir", str(tmp_path)]
    unbroken = losses("fsdp", 2, "--steps", "6", "--save-every", "3", *directory)
    resumed = losses("fsdp", 1, "--steps", "6", "--resume", str(tmp_path / "step-3"), *directory)
    assert resumed == pytest.approx({step: unbroken[step] for step in (4, 5, 6)}, abs=2e-3)

"""A script is checked by name or through a job file, regardless of its location."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.typed import give_collection, typed

pytestmark = pytest.mark.one_core
WRONG = "import torch\nloss.backward()\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create a project with a job file next to its code, and a script that is not ready for several nodes."""
    give_collection(tmp_path)
    (tmp_path / "machines.yml").write_text("training: {hosts: {node0: {}}}\n")
    (tmp_path / "other" / "src").mkdir(parents=True)
    (tmp_path / "other" / "src" / "train.py").write_text(WRONG)
    (tmp_path / "other" / "job.yml").write_text("job: {script: train.py, code: src, launcher: torchrun}\n")
    (tmp_path / "right.py").write_text("print('no torch')\n")
    return tmp_path


def check(directory: Path, *options: str) -> tuple[int, str]:
    completed = typed(directory, ["ansible-playbook", "muster.training.check", "-i", "machines.yml", *options])
    return completed.returncode, completed.stdout


def test_errors_are_shown_with_their_lines_and_end_the_command_with_an_error(directory: Path) -> None:
    code, output = check(directory, "-e", "check_script=other/src/train.py")
    assert code == 2
    assert "train.py:2: ERROR process-group-missing\n" in output
    assert "write: at the start of the program: torch.distributed.init_process_group()" in output
    assert "other/src/train.py on several nodes: 1 error in 1 file" in output


def test_script_of_a_job_file_is_relative_to_the_file(directory: Path) -> None:
    code, output = check(directory, "-e", "@other/job.yml")
    assert code == 2 and "train.py:2: ERROR process-group-missing\n" in output


def test_script_is_searched_for_in_the_nodes_code_source(directory: Path) -> None:
    (directory / "machines.yml").write_text("training: {hosts: {node0: {code_source: other/src}}}\n")
    code, output = check(directory, "-e", "check_script=train.py")
    assert code == 2 and "process-group-missing" in output


def test_rules_can_be_skipped_and_a_misspelt_one_is_refused(directory: Path) -> None:
    code, output = check(directory, "-e", "check_script=other/src/train.py", "-e", "check_skip=process-group-missing")
    assert code == 0 and "train.py on several nodes: no problem in 1 file" in output
    code, output = check(directory, "-e", "check_script=other/src/train.py", "-e", "check_skip=process-group")
    assert code == 2 and "unknown rule: process-group. Valid rules: " in output


def test_missing_script_or_script_without_torch_is_reported(directory: Path) -> None:
    code, output = check(directory, "-e", "check_script=right.py")
    assert code == 0 and "right.py does not import torch: nothing to check" in output
    code, output = check(directory)
    assert code == 2 and "no script is set: run ./muster check train.py or ./muster check job.yml" in output
    code, output = check(directory, "-e", "check_script=nothing.py")
    assert code == 2 and f"nothing.py does not exist in {directory}. Correct the path: ./muster check PATH" in output

"""Programs that run standalone on a node."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.start import write_supervisor
from ansible_collections.muster.training.plugins.module_utils._supervisor import entry
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs import muster_rank, ssh_shim
from ansible_collections.muster.training.plugins.plugin_utils._node_call.run_programs import supervisor_files
from tests.sanity import real_interpreter


@pytest.mark.parametrize("module", [entry, muster_rank, ssh_shim])
@pytest.mark.parametrize("version", ["3.8", "3.9", "3.13"])
def test_standalone_programs_run_with_only_the_standard_library(version: str, module: Any) -> None:
    interpreter = real_interpreter(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} here")
    source = Path(module.__file__).resolve()
    with tempfile.TemporaryDirectory() as directory:
        program = f"import runpy; runpy.run_path({str(source)!r})"
        command = [str(interpreter), "-I", "-S", "-c", program]
        completed = subprocess.run(command, check=False, cwd=directory, capture_output=True, text=True)
    assert (completed.returncode, completed.stderr) == (0, "")


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.13"])
def test_supervisor_and_guard_need_only_the_files_beside_them(version: str, tmp_path: Path) -> None:
    interpreter = real_interpreter(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} here")
    write_supervisor(str(tmp_path), supervisor_files())
    command = [str(interpreter), "-I", "-S", str(tmp_path / "supervisor.py")]
    for arguments, output in (([], "plan.json"), (["--guard"], "")):
        run = tmp_path / "run"
        run.mkdir()
        completed = subprocess.run(
            [*command, *arguments, str(run)], check=False, capture_output=True, text=True, timeout=300
        )
        message = (run / "supervisor.log").read_text()
        assert (
            completed.returncode == 1 and message.splitlines()[-1].startswith("FileNotFoundError") and output in message
        )
        shutil.rmtree(run)
    assert not list(tmp_path.rglob("__pycache__"))

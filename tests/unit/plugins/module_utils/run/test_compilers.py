"""Compilers that a silent job runs are identified among its processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from ansible_collections.muster.training.plugins.module_utils._run.compilers import running_compilers
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import COMPILER_SILENCE
from ansible_collections.muster.training.plugins.module_utils._run.watch import compilers_of
from tests.unit.supervised import eventually

SCRIPT = "sleep 600 & first=$!; ./cc1plus 600 & read line; kill $first $!"


def test_compilers_started_below_the_supervisor_are_named_after_a_period_of_silence(tmp_path: Path) -> None:
    shutil.copy(str(shutil.which("sleep")), tmp_path / "cc1plus")
    log = tmp_path / "stdout.log"
    log.write_text("step 1\n")
    with subprocess.Popen(["sh", "-c", SCRIPT], cwd=tmp_path, stdin=subprocess.PIPE) as shell:
        (tmp_path / "supervisor.json").write_text(json.dumps({"pid": shell.pid}))
        eventually(lambda: running_compilers(str(tmp_path)) == ["cc1plus"])
        assert compilers_of(str(tmp_path), [str(log)]) == []
        long_ago = log.stat().st_mtime - COMPILER_SILENCE - 1
        os.utime(log, (long_ago, long_ago))
        assert compilers_of(str(tmp_path), [str(log)]) == ["cc1plus"]
        shell.communicate(b"end\n")
    assert running_compilers(str(tmp_path)) == running_compilers(str(tmp_path / "gone")) == []

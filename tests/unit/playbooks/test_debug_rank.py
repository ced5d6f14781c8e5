# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""launch.yml with debug_rank: the editor configuration, an attached debugger, and the end of the run."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from tests.unit.plugins.module_utils.supervisor.test_debug_rank import DebugClient
from tests.unit.supervised import eventually, free_port
from tests.unit.two_nodes import stop_run, two_nodes
from tests.unit.typed import begun, typed

JOB = "value = 41\nvalue += 1\nprint('value', value, flush=True)\n"


@pytest.mark.one_core
@pytest.mark.skipif(importlib.util.find_spec("debugpy") is None, reason="debugpy is not installed")
def test_a_rank_waits_until_an_editor_attaches(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    settings = {"launch_launcher": "env", "launch_python": sys.executable, "launch_script": f"{tmp_path}/job.py"}
    two_nodes(tmp_path, 40, **settings, launch_report=False)
    launch = ["ansible-playbook", "muster.training.launch", "-i", "machines.yml", "-e", "run_id=first"]
    refused = typed(tmp_path, [*launch, "-e", "debug_rank=2"])
    assert refused.returncode == 2 and "the rank to debug, 2, does not exist" in refused.stdout, refused.stdout
    port = free_port()
    process = begun(tmp_path, [*launch, "-e", "debug_rank=1", "-e", f"debug_port={port}"])
    try:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if "rank 1 on local1 is waiting for a debugger on port" in line:
                break
        text = "".join(lines)
        configuration = json.loads(text[text.index('{\n  "version"') : text.index("\n}\n") + 2])
        assert configuration["configurations"][0]["connect"] == {"host": "127.0.0.1", "port": port}
        log = tmp_path / "nodes" / "first" / "node1" / "launcher.log"
        assert log.read_text() == ""
        client = DebugClient(port)
        client.request("initialize", adapterID="debugpy", clientID="test", linesStartAt1=True, pathFormat="path")
        client.send("attach", subProcess=False)
        client.event("initialized")
        client.request("configurationDone")
        eventually(lambda: "value 42" in log.read_text(), 240)
        remaining_output, _nothing = process.communicate(timeout=600)
        assert process.returncode == 0, remaining_output
        assert "a debugger is attached to rank 1 on local1" in text + remaining_output
    finally:
        process.kill()
        stop_run(tmp_path, "first")

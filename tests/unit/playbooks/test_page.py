# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""page.yml for a run on two nodes: its URL, the data of the run, and the button that stops it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.unit.supervised import eventually
from tests.unit.two_nodes import state_of, stop_run, two_nodes
from tests.unit.typed import begun, typed

JOB = """
import time
for step in range(5):
    print(f"step {step}: loss {1 / (step + 1)}", flush=True)
time.sleep(600)
"""


def read_url(process: subprocess.Popen[str]) -> re.Match[str]:
    """Return the URL that the command prints."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        match = re.search(r"page: (http://127\.0\.0\.1:[0-9]+)/#token=([\w-]+)", line)
        if match:
            return match
    raise AssertionError("".join(lines))


def send_request(match: re.Match[str], path: str, method: str = "GET", token: str = "") -> Any:
    """Send a request like the page."""
    headers = {"Authorization": f"Bearer {token or match[2]}", "Origin": match[1]}
    request = urllib.request.Request(f"{match[1]}/api/{path}", method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.load(reply)


@pytest.mark.one_core
def test_a_run_is_shown_and_stopped_in_the_browser(tmp_path: Path) -> None:
    two_nodes(tmp_path, 37, launch_launcher="env", launch_report=False, launch_script=f"{tmp_path}/job.py")
    (tmp_path / "job.py").write_text(JOB)
    launch = ["ansible-playbook", "muster.training.launch", "-i", "machines.yml"]
    launched = typed(tmp_path, [*launch, "-e", "detach=true", "-e", "run_id=first"])
    assert launched.returncode == 0, launched.stdout
    page = begun(tmp_path, ["ansible-playbook", "muster.training.page", "-i", "machines.yml", "-e", "run_id=fir"])
    try:
        url = read_url(page)
        assert [(run["run_id"], run["state"]) for run in send_request(url, "runs")["runs"]] == [("first", "open")]
        eventually(lambda: send_request(url, "runs/first")["connection"]["state"] == "connected")
        eventually(
            lambda: send_request(url, "runs/first")["state"] == "running" and send_request(url, "runs/first")["events"]
        )
        eventually(lambda: "step 4: loss 0.2" in send_request(url, "runs/first/output?rank=0")["lines"])
        eventually(lambda: "step 4: loss 0.2" in send_request(url, "runs/first/output?rank=1")["lines"])
        matches = send_request(url, "runs/first/search?text=STEP%203")["matches"]
        assert [match["rank"] for match in matches] == [0, 1]
        eventually(lambda: send_request(url, "runs/first/curves")["metrics"])
        with pytest.raises(urllib.error.HTTPError):
            send_request(url, "runs", token="wrong")
        send_request(url, "runs/first/stop", "POST")
        eventually(lambda: (send_request(url, "runs/first")["command"] or {}).get("exit_code") == 0, 240)
        assert state_of(tmp_path, "first") == "stopped"
        eventually(lambda: send_request(url, "runs/first")["state"] == "stopped")
        os.killpg(page.pid, signal.SIGINT)
        page.communicate(timeout=120)
        with pytest.raises(urllib.error.URLError):
            send_request(url, "runs")
    finally:
        page.kill()
        stop_run(tmp_path, "first")


@pytest.mark.one_core
def test_a_port_that_is_in_use_or_invalid_is_an_error(tmp_path: Path) -> None:
    two_nodes(tmp_path, 38)
    command = ["ansible-playbook", "muster.training.page", "-i", "machines.yml", "-e"]
    completed = typed(tmp_path, [*command, "page_port=70000"])
    assert completed.returncode == 2 and "the port of the page is '70000'" in completed.stdout
    completed = typed(tmp_path, [*command, "page_port=abc"], MUSTER_COMMAND="./muster")
    message = "the port of the page is 'abc': use a number from 1024 to 65535, as in ./muster page --port 8765"
    assert completed.returncode == 2 and message in completed.stdout, completed.stdout
    assert "launch_page_port" not in completed.stdout
    completed = typed(tmp_path, [*command, "run_id=missing"])
    assert completed.returncode == 2 and "does not exist" in completed.stdout

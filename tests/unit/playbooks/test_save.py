# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""save.yml for a run on two nodes; its notification URL is a secret and must not be recorded."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.unit.supervised import eventually
from tests.unit.two_nodes import state_of, stop_run, two_nodes
from tests.unit.typed import typed

SECRET = "s3cr3t-Wm4"
JOB = """
import json, os, pathlib, time
file = pathlib.Path(os.environ["MUSTER_NOTICE_FILE"])
while True:
    if file.exists():
        stop = json.loads(file.read_text())["stop"]
        file.unlink()
        if stop:
            break
    time.sleep(0.05)
"""


@pytest.mark.one_core
def test_run_saves_continues_and_is_interrupted_and_the_url_stays_secret(tmp_path: Path) -> None:
    received: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    two_nodes(tmp_path, 31, launch_launcher="env", launch_report=False, launch_script=f"{tmp_path}/job.py")
    (tmp_path / "job.py").write_text(JOB)
    url = f"http://127.0.0.1:{server.server_port}/{SECRET}"
    (tmp_path / "job.yml").write_text(f"job: {{notify: [{{url: '{url}', kind: json}}]}}\n")
    (tmp_path / "project.yml").write_text(f"launch_notify: {url}-of-the-project\n")

    def run(playbook: str, *options: str, expected: int = 0) -> str:
        command = ["ansible-playbook", f"muster.training.{playbook}", "-i", "machines.yml", *options]
        completed = typed(tmp_path, command)
        assert completed.returncode == expected, completed.stdout
        return completed.stdout

    try:
        output = run("launch", "-vvvv", "--diff", "-e", "@job.yml", "-e", "detach=true", "-e", "run_id=first")
        assert SECRET not in output, [line for line in output.splitlines() if SECRET in line]
        checked = (
            "--check",
            "--diff",
            "-vvv",
            "-e",
            "@job.yml",
            "-e",
            "run_id=other",
            "-e",
            "launch_lifeline_port=29498",
        )
        assert SECRET not in run("launch", *checked)
        eventually(lambda: state_of(tmp_path, "first") == "running")
        output = run("save", "-vvv")
        assert "[muster] requested to save and continue" in output
        assert "[muster] local1: wrote the notice file for 1 rank" in output
        assert SECRET not in output and state_of(tmp_path, "first") == "running"
        output = run("save", "-e", "save_stop=true")
        assert "[muster] requested to save and end" in output
        eventually(lambda: state_of(tmp_path, "first") == "interrupted")
        output = run("status")
        assert "run first interrupted" in output and "to continue, run " in output
        assert "reason: requested to save and end" in output
        assert "the run is not active" in run("save", "-e", "run_id=first", expected=2)
        eventually(lambda: [body["event"] for _path, body in received] == ["started", "notice", "notice", "ended"])
        assert {path for path, _body in received} == {f"/{SECRET}"}, "the job's, not the project's"
        holders = [path.name for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
        assert sorted(holders) == ["job.yml", "project.yml"]
    finally:
        server.shutdown()
        stop_run(tmp_path, "first")

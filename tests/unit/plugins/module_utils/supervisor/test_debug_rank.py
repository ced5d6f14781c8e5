# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rank of a real run waits for a debugger, which a client of the Debug Adapter Protocol then controls."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._supervisor.debugger import DebuggerWatch
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs import debug_rank
from tests.unit.supervised import end_by_force, eventually, free_port, make_run

SCRIPT = """
import os, time
value = 41
breakpoint()
value += 1
print("value", value, flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
"""
BREAKPOINT_LINE = 5  # value += 1
has_debugpy = importlib.util.find_spec("debugpy") is not None
STUB = """
from datetime import timedelta
default_pg_timeout = timedelta(minutes=30)
default_pg_nccl_timeout = timedelta(minutes=10)
def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1):
    return timeout
def new_group(ranks=None, timeout=None):
    return timeout
"""


class DebugClient:
    """A client of the Debug Adapter Protocol, like an editor."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=300)
        self.stream = self.socket.makefile("rb")
        self.number = 0

    def read(self) -> dict[str, Any]:
        """Return the next message."""
        size = 0
        while line := self.stream.readline().strip():
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        message: dict[str, Any] = json.loads(self.stream.read(size))
        return message

    def send(self, command: str, **arguments: Any) -> int:
        """Send a request; return its number."""
        self.number += 1
        request = {"seq": self.number, "type": "request", "command": command, "arguments": arguments}
        data = json.dumps(request).encode()
        self.socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        return self.number

    def wait(self, accept: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first message that is accepted."""
        while True:
            message = self.read()
            if accept(message):
                return message

    def event(self, name: str) -> dict[str, Any]:
        return self.wait(lambda message: message.get("event") == name)

    def request(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Return the body of the reply to a request."""
        number = self.send(command, **arguments)
        reply = self.wait(lambda message: message.get("request_seq") == number and message["type"] == "response")
        assert reply["success"], reply
        body: dict[str, Any] = reply.get("body") or {}
        return body


@pytest.mark.skipif(not has_debugpy, reason="debugpy is not installed (requirements-test.txt)")
def test_debugger_stops_the_rank_shows_its_variables_and_resumes_it(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    port = free_port()
    ports: Any = {"lifeline_port": free_port(), "master_port": free_port(), "debug_rank": 1, "debug_port": port}
    run = make_run(tmp_path, [[sys.executable, "-u", str(script)]] * 2, first_address=176, **ports)
    for plan in run.plans:
        plan["working_directory"] = str(tmp_path)
        plan["environment"]["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    assert run.plans[0]["timeouts"].pop("hang", 0) == 0
    try:
        run.start()
        run.wait_for("running", seconds=400)
        eventually(lambda: any("rank 1 on node1 is waiting for a debugger" in text for text in run.events()), 400)
        # breakpoint() on the other rank has no effect
        eventually(lambda: "value 42" in (run.node(0) / "launcher.log").read_text(), 400)
        assert "value" not in (run.node(1) / "launcher.log").read_text()
        client = DebugClient(port)
        client.request("initialize", adapterID="debugpy", clientID="test", linesStartAt1=True, pathFormat="path")
        client.send("attach", subProcess=False)
        client.event("initialized")
        client.request("setBreakpoints", source={"path": str(script)}, breakpoints=[{"line": BREAKPOINT_LINE}])
        client.request("configurationDone")
        stopped = client.event("stopped")["body"]
        frame = client.request("stackTrace", threadId=stopped["threadId"])["stackFrames"][0]
        assert frame["line"] in (BREAKPOINT_LINE - 1, BREAKPOINT_LINE)
        assert client.request("evaluate", expression="value", frameId=frame["id"])["result"] == "41"
        client.request("setBreakpoints", source={"path": str(script)}, breakpoints=[])
        client.request("disconnect", terminateDebuggee=False)
        eventually(lambda: "value 42" in (run.node(1) / "launcher.log").read_text(), 400)
        assert any("a debugger is attached to rank 1 on node1" in text for text in run.events())
        (tmp_path / "go").touch()
        run.wait_for("succeeded", seconds=400)
    finally:
        end_by_force(run)


def test_without_debugpy_the_rank_exits_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "hooks").mkdir()
    settings = {"rank": 3, "local_rank": 0, "port": 5678, "timeout": 60}
    (tmp_path / "hooks" / debug_rank.SETTINGS).write_text(json.dumps(settings))
    (tmp_path / "debugpy.py").write_text("raise ImportError('no debugpy')")
    code = f"import os, sys; sys.path[:0] = [{str(tmp_path)!r}]; names = {{}}\n"
    code += f"exec(compile(open({debug_rank.__file__!r}).read(), 'debug_rank', 'exec', dont_inherit=True), names)\n"
    code += f"names['main']({str(tmp_path)!r}, '0:' + str(os.getpid()))\n"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=600)
    assert completed.returncode == debug_rank.NO_DEBUGGER_EXIT
    assert "muster: no debugger for rank 3: debugpy is not installed" in completed.stderr
    assert "./muster site --tags python_env" in completed.stderr


def test_timeouts_of_collectives_are_extended_when_the_job_imports_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "torch" / "distributed"
    package.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").touch()
    (package / "__init__.py").write_text("from torch.distributed.distributed_c10d import *\n")
    (package / "distributed_c10d.py").write_text(STUB)
    for name in [name for name in sys.modules if name == "torch" or name.startswith("torch.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [debug_rank.TimeoutExtender(86400.0), *sys.meta_path])
    try:
        dist: Any = importlib.import_module("torch.distributed")
        day = timedelta(days=1)
        assert dist.distributed_c10d.default_pg_timeout == dist.distributed_c10d.default_pg_nccl_timeout == day
        assert dist.init_process_group("gloo", timeout=timedelta(minutes=5)) == day
        assert dist.init_process_group("gloo", None, timedelta(days=2)) == timedelta(days=2)
        assert dist.init_process_group("gloo") is None  # in that case torch uses the default
        assert dist.new_group([0, 1], timedelta(seconds=1)) == day
    finally:
        for name in [name for name in sys.modules if name == "torch" or name.startswith("torch.")]:
            del sys.modules[name]


@pytest.mark.parametrize(
    ("node", "world_size", "expected"),
    [
        (
            {"name": "fresh", "first_rank": 2, "slots": 2, "attempt_rank": 1},
            4,
            "rank 3 on fresh is waiting for a debugger on port 5678 of its node; the other ranks are waiting for it",
        ),
        ({"name": "node0", "first_rank": 0, "slots": 2, "attempt_rank": 0}, 4, ""),
        (
            {"name": "node0", "first_rank": 0, "slots": 2, "attempt_rank": 0},
            2,
            "this attempt has no rank 3, so none of its ranks is waiting for a debugger",
        ),
        ({"name": "node2", "first_rank": 0, "slots": 0, "attempt_rank": -1}, 2, ""),
    ],
)
def test_the_debugged_rank_is_located_on_another_node_after_a_restart(
    tmp_path: Path, node: dict[str, Any], world_size: int, expected: str
) -> None:
    """Cover a replacement of the planned node, and a restart with fewer ranks."""
    plan: Any = {"node": node, "world_size": world_size, "debugger": {"rank": 3, "node": "node1", "port": 5678}}
    debug_rank.write_state(str(tmp_path), "waiting", 5678)
    watch = DebuggerWatch(str(tmp_path), plan)
    assert [text for _kind, text in [*watch.step(), *watch.step()]] == ([expected] if expected else [])

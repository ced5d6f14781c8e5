# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A call to a node: valid replies, refusals, and output without a reply."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import (
    BOOTSTRAP,
    MODULE_UTILS,
    PACKAGE,
    REPLY_MARK,
    NodeRequestError,
    call_node,
    imported_modules,
    keep_alive,
    module_source,
    pack_texts,
    required_modules,
    shell_command,
    standard_input,
)
from tests.unit.hostile import BRACKETS
from tests.unit.typed import give_collection


def called(rc: int, stdout: str = "", stderr: str = "") -> dict[str, Any]:
    """Return the interpretation of a node's output."""

    def execute(*_arguments: Any, **_more: Any) -> dict[str, Any]:
        return {"rc": rc, "stdout": stdout, "stderr": stderr}

    return on_node(execute, {})


def on_node(
    execute: Any, request: dict[str, Any], variables: dict[str, Any] | None = None, timeout: float = 60.0
) -> dict[str, Any]:
    action: Any = SimpleNamespace(
        _task=SimpleNamespace(delegate_to=None),
        _connection=SimpleNamespace(transport="local"),
        _templar=SimpleNamespace(template=lambda value: value),
        _low_level_execute_command=execute,
    )
    return call_node(action, "_run.dispatch", request, {"inventory_hostname": "node0", **(variables or {})}, timeout)


def test_ssh_keep_alive_overrides_ansible_cfg() -> None:
    options = {"ssh_args": "-o ControlMaster=auto -o ServerAliveInterval=600"}
    connection = SimpleNamespace(transport="ssh", get_option=options.get, set_option=options.__setitem__)
    for _call in range(2):
        keep_alive(connection)
    arguments = ["ssh", "-G", "-F", "/dev/null", *options["ssh_args"].split(), "node0"]
    output = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout.splitlines()
    assert "serveraliveinterval 5" in output and "serveralivecountmax 3" in output
    assert options["ssh_args"].count("ServerAliveInterval") == 2, "told more than once"


def test_reply_is_extracted_from_other_output() -> None:
    reply = {"changed": False, "error": ""}
    assert called(0, f"Welcome!\n{REPLY_MARK}{json.dumps(reply)}\nbye\n") == reply


def test_error_in_the_reply_is_a_refusal() -> None:
    with pytest.raises(NodeRequestError, match="node0: there is no run first"):
        called(0, REPLY_MARK + json.dumps({"error": "there is no run first on this node"}))


@pytest.mark.parametrize(
    ("rc", "stdout", "stderr", "text"),
    [
        (137, "", "Killed", "unexpected reply from the node \\(exit code 137\\): Killed"),
        (137, REPLY_MARK + '{"changed": fal', "Killed", "unexpected reply from the node \\(exit code 137\\): Killed"),
        (2, "", "sh: 1: Cannot fork", "exit code 2.*Cannot fork"),
        (127, "", "sh: 1: exec: /usr/bin/python3: not found", "no Python interpreter on this node"),
    ],
)
def test_missing_reply_is_a_failure_but_not_a_refusal(rc: int, stdout: str, stderr: str, text: str) -> None:
    with pytest.raises(AnsibleActionFail, match=text) as caught:
        called(rc, stdout, stderr)
    assert not isinstance(caught.value, NodeRequestError)


@pytest.mark.parametrize("interpreter", ["", "/opt/my python/bin/python3"])
def test_command_is_safe_for_any_login_shell(interpreter: str) -> None:
    """csh rejects newlines in quotes and expands `!` even there; fish interprets backslashes in single quotes."""
    commands: list[str] = []

    def execute(command: str, **_more: Any) -> dict[str, Any]:
        commands.append(command)
        return {"rc": 0, "stdout": REPLY_MARK + "{}", "stderr": ""}

    on_node(execute, {"operation": "read"}, {"ansible_python_interpreter": interpreter})
    assert not set("\n!\\") & set(commands[0]), commands
    assert "operation" not in commands[0], "the request is in argv"


def test_node_refuses_a_run_it_does_not_have(tmp_path: Any) -> None:
    def execute(command: str, in_data: bytes, **_more: Any) -> dict[str, Any]:
        completed = subprocess.run(["sh", "-c", command], input=in_data, capture_output=True, check=False, timeout=300)
        return {"rc": completed.returncode, "stdout": completed.stdout.decode(), "stderr": completed.stderr.decode()}

    run_id = f"unit-{os.getpid()}"  # this machine may be running another
    request = {"operation": "watch", "run_id": run_id, "runs_directory": str(tmp_path), "node": "node0"}
    with pytest.raises(NodeRequestError, match=f"node0: run {run_id} does not exist on this node"):
        on_node(execute, request)


def imported(tree: ast.AST) -> set[str]:
    """Return the collection's modules that a module imports on the node, as reported by Python itself."""
    result: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            within = (node.module or "")[len(PACKAGE) :].lstrip(".")
            for alias in node.names:
                name = f"{within}.{alias.name}".lstrip(".")
                result.add(name if (MODULE_UTILS / (name.replace(".", "/") + ".py")).is_file() else within)
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            result |= imported(node)
    return result


def test_modules_needed_on_the_node_are_those_imported() -> None:
    for path in MODULE_UTILS.rglob("*.py"):
        name = ".".join(path.relative_to(MODULE_UTILS).with_suffix("").parts)
        assert imported_modules(name) == imported(ast.parse(module_source(name))), name
    needed = required_modules("_run.dispatch")
    assert {"_run.dispatch", "_run.start", "_run.safe_files"} <= set(needed)
    assert not {"_run.documents", "_run.list_runs", "_plan.plan"} & set(needed)


def test_node_that_never_replies_counts_as_unresponsive() -> None:
    released = threading.Event()

    def hang(*_arguments: Any, **_more: Any) -> dict[str, Any]:
        released.wait(60)
        return {"rc": 0, "stdout": "", "stderr": ""}

    with pytest.raises(AnsibleConnectionFailure, match="node0 is not responding: .* no reply within 0.1 s"):
        on_node(hang, {}, timeout=0.1)
    released.set()


def test_connection_errors_are_propagated() -> None:
    def fail(*_arguments: Any, **_more: Any) -> dict[str, Any]:
        raise AnsibleConnectionFailure("no route to host")

    with pytest.raises(AnsibleConnectionFailure, match="no route to host"):
        on_node(fail, {})


@pytest.mark.parametrize("reply", [BRACKETS, BRACKETS + "]" * len(BRACKETS), "[1]", "1", "{"])
def test_reply_that_is_not_a_plain_object_is_refused(reply: str) -> None:
    with pytest.raises(AnsibleActionFail, match="unexpected reply from the node"):
        called(0, REPLY_MARK + reply)


def test_reply_cannot_control_ansible() -> None:
    """A task result with these fields would change other hosts, or the report of ansible-playbook."""
    orders: dict[str, Any] = {"add_host": {"host_name": "node1", "host_vars": {"ansible_connection": "local"}}}
    orders |= {"add_group": "all", "ansible_facts": {"a": 1}, "ansible_stats": {"data": {"a": 1}}}
    orders |= {"_ansible_notify": ["restart"], "_ansible_delegated_vars": {"a": 1}, "results": [{"add_host": {}}]}
    orders |= {"warnings": ["w"], "deprecations": ["d"], "exception": "e", "invocation": {}}
    reply = {"changed": True, "runs": [{"add_host": "of the job"}]}
    assert called(0, REPLY_MARK + json.dumps({**orders, **reply})) == reply


def test_kernel_ends_an_abandoned_call(tmp_path: Path) -> None:
    """The node waits for a pipe without a writer."""
    os.mkfifo(tmp_path / "pipe")
    hang = "def main(request):\n    open(request).read()"
    call: dict[str, Any] = {
        "sources": pack_texts({"hang": hang}).data,
        "main": "hang",
        "request": str(tmp_path / "pipe"),
        "packed": {},
    }
    call |= {"mark": "", "limit": 1, "read_only": False}
    data = f"exec({BOOTSTRAP!r})\n{json.dumps(call)}"
    command = ["/bin/sh", "-c", shell_command(f"P={sys.executable}")]
    completed = subprocess.run(command, input=data, text=True, capture_output=True, check=False)
    assert completed.returncode == -signal.SIGALRM, completed.stderr


@pytest.mark.parametrize("read_only", [True, False])
def test_call_that_only_reads_ends_when_nobody_awaits_its_reply(tmp_path: Path, read_only: bool) -> None:
    begins, ends = tmp_path / "begins", tmp_path / "ends"
    os.mkfifo(begins)
    os.mkfifo(ends)
    wait = "def main(request):\n    open(request[0], 'w').close()\n    open(request[1]).close()"
    call: dict[str, Any] = {
        "sources": pack_texts({"wait": wait}).data,
        "main": "wait",
        "request": [str(begins), str(ends)],
    }
    call |= {"packed": {}, "mark": "", "limit": 0}
    data = f"exec({BOOTSTRAP!r})\n{json.dumps({**call, 'read_only': read_only})}".encode()
    command = ["/bin/sh", "-c", shell_command(f"P={sys.executable}")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        process.stdin.write(data)
        process.stdin.close()
        begins.read_bytes()  # waits until the call has started
        process.stdout.close()
        if not read_only:
            ends.write_bytes(b"")  # blocks until another process reads it
        process.wait(60)
    assert process.returncode != 0


def test_plugins_that_call_nodes_have_read_the_sources_in_advance(tmp_path: Path) -> None:
    """Ansible loads these plugins before it forks a process for each node; a separate process loads only these."""
    program = """
import sys
from ansible.plugins.loader import action_loader, init_plugin_loader
init_plugin_loader([sys.argv[1]])
action_loader.get("muster.training.training_run", class_only=True)
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import module_source, required_modules
before = module_source.cache_info().misses
for module in ("_run.dispatch", "_supervisor.entry"):
    for name in required_modules(module):
        module_source(name)
assert module_source.cache_info().misses == before
"""
    give_collection(tmp_path)
    command = [sys.executable, "-c", program, str(tmp_path / "collections")]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr


def test_packed_request_fields_reach_the_node_as_text() -> None:
    reply = "import json\ndef main(request):\n    return {'fields': request}"
    texts = {"supervisor.py": "# ü\n" * 10_000, "program/a.py": ""}
    packed = pack_texts(texts)
    assert len(packed.data) < len(texts["supervisor.py"]) / 20
    call: dict[str, Any] = {"sources": pack_texts({"reply": reply}).data, "main": "reply", "request": {"other": [1]}}
    call |= {"packed": {"supervisor": packed.data}, "mark": REPLY_MARK, "limit": 0, "read_only": False}
    command = ["/bin/sh", "-c", shell_command(f"P={sys.executable}")]
    data = f"exec({BOOTSTRAP!r})\n{json.dumps(call)}"
    completed = subprocess.run(command, input=data, text=True, capture_output=True, check=True)
    assert json.loads(completed.stdout[len(REPLY_MARK) :]) == {"fields": {"other": [1], "supervisor": texts}}
    sent = json.loads(standard_input("_run.dispatch", {"supervisor": packed, "other": [1]}).partition(b"\n")[2])
    assert sent["request"] == {"other": [1]} and sent["packed"] == {"supervisor": packed.data}


def test_closed_output_signal_does_not_end_the_interpreter_after_its_reply() -> None:
    """Python restores the default handlers at exit; the signal may arrive after that, while ssh reads the reply."""
    late = """
import os, signal
class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGIO):
        kill(pid, number)
late = Late()
def main(request):
    return {"a": 1}
"""
    call: dict[str, Any] = {"sources": pack_texts({"late": late}).data, "main": "late", "request": {}, "packed": {}}
    call |= {"mark": REPLY_MARK, "limit": 0, "read_only": True}
    data = f"exec({BOOTSTRAP!r})\n{json.dumps(call)}"
    command = ["/bin/sh", "-c", shell_command(f"P={sys.executable}")]
    completed = subprocess.run(command, input=data, text=True, capture_output=True, check=False)
    assert (completed.returncode, completed.stdout) == (0, f'{REPLY_MARK}{{"a": 1}}\n'), completed.stderr

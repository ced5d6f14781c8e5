# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run our own code on a node in one round trip. Private to this collection, controller only.

A module of Ansible's costs a node an interpreter with a large library and the controller an archive; what runs here is
a few files of the standard library, sent to a bare interpreter's standard input. Nothing of the request is ever in
argv. The command itself is one short line: the user's login shell reads it first, and csh accepts no newline between
quotes and expands `!` everywhere, fish reads backslashes between single quotes.
"""

from __future__ import annotations

import importlib.resources
import json
import shlex
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

PACKAGE = "ansible_collections.muster.training.plugins.module_utils"
MARK = "MUSTER-ANSWER "
UNHEARD = "could not be sent"
"""What Ansible says where ssh ended before it had read its standard input: instead of ssh's own words."""
KEEP_ALIVE = "-o ServerAliveInterval=5 -o ServerAliveCountMax=3"
# The first line of standard input is BOOTSTRAP as one statement, the rest is what that reads.
FIRST_LINE = "import sys; exec(sys.stdin.buffer.readline())"
# Reads {"modules": [[name, source], ...], "request": ...}, makes the modules importable under the collection's own name
# and prints the answer of the last one's main().
BOOTSTRAP = f"""
import json, sys
if sys.version_info < (3, 8):
    print({MARK!r} + json.dumps({{"error": "Python %d.%d is too old" % sys.version_info[:2]}})); sys.exit()
call = json.loads(sys.stdin.buffer.read())
kind = type(sys)
for name, source in call["modules"]:
    parent, path = None, ""
    for part in ({PACKAGE!r} + "." + name).split("."):
        path = path + "." + part if path else part
        module = sys.modules.get(path)
        if module is None:
            module = sys.modules[path] = kind(path)
            module.__path__ = []
            if parent is not None:
                setattr(parent, part, module)
        parent = module
    exec(compile(source, name + ".py", "exec"), module.__dict__)
print({MARK!r} + json.dumps(module.main(call["request"])))
"""


class NodeRefusal(AnsibleActionFail):
    """What our code on a node answered: that it cannot do what is asked, in words. To ask again is of no use."""


def source_of(module: str) -> str:
    """The source text of one of this collection's module_utils."""
    return importlib.resources.files(PACKAGE).joinpath(module + ".py").read_text(encoding="utf-8")


def interpreter_words(task_vars: Mapping[str, Any], template: Any) -> str:
    """Shell words that leave the interpreter for our code in $P: the configured one, else the system's."""
    configured = template(task_vars.get("ansible_python_interpreter") or "")
    if configured and not str(configured).startswith("auto"):
        return f"P={shlex.quote(str(configured))}"
    return "P=$(command -v /usr/bin/python3 || command -v python3) || P=/usr/bin/python3"


def shell_command(interpreter: str) -> str:
    """The command line that runs standard_input(), for any login shell.

    interpreter: see interpreter_words().
    """
    return f'{interpreter}; exec "$P" -I -S -c "{FIRST_LINE}"'


def standard_input(modules: list[str], request: Mapping[str, Any]) -> bytes:
    """What shell_command() reads: BOOTSTRAP in one line, then the modules and the request."""
    payload = json.dumps({"modules": [(module, source_of(module)) for module in modules], "request": request})
    return f"exec({BOOTSTRAP!r})\n{payload}".encode()


def keep_alive(connection: Any) -> None:
    """Have ssh notice within 15 s that a node is gone, whatever ansible.cfg says: of an option ssh takes the first."""
    if connection.transport == "ssh":
        given = connection.get_option("ssh_args") or ""
        if not given.startswith(KEEP_ALIVE):
            connection.set_option("ssh_args", f"{KEEP_ALIVE} {given}".strip())


def execute(action: ActionBase, command: str, data: bytes) -> dict[str, Any]:
    """Run a command with this standard input on the action's node, as its user or as the one that it becomes.

    Raises AnsibleConnectionFailure with ssh's own words where the node cannot be reached.
    """
    try:
        done: dict[str, Any] = action._low_level_execute_command(command, in_data=data, sudoable=True)
    except AnsibleConnectionFailure as problem:
        if UNHEARD not in str(problem):
            raise
        # nothing is sent this time
        action._low_level_execute_command("true", sudoable=True)
        done = action._low_level_execute_command(command, in_data=data, sudoable=True)
    return done


def call_node(
    action: ActionBase, modules: list[str], request: Mapping[str, Any], task_vars: Mapping[str, Any]
) -> dict[str, Any]:
    """Run main(request) of the last of the modules on the action's node and return its answer.

    Raises AnsibleConnectionFailure where the node cannot be reached, NodeRefusal where our code there cannot do what is
    asked, AnsibleActionFail where it has not come to an answer: no Python, no memory, no new process.
    """
    name = task_vars["inventory_hostname"]
    if action._task.delegate_to:
        name = action._task.delegate_to
        task_vars = task_vars.get("ansible_delegated_vars", {}).get(name, task_vars)
    keep_alive(action._connection)
    command = shell_command(interpreter_words(task_vars, action._templar.template))
    done = execute(action, command, standard_input(modules, request))
    for line in done["stdout"].splitlines():
        if line.startswith(MARK):
            try:
                answer: dict[str, Any] = json.loads(line[len(MARK) :])
            except ValueError:  # it was killed while it wrote
                break
            if answer.get("error"):
                raise NodeRefusal(f"{name}: {answer['error']}")
            return answer
    said = (done["stderr"] or done["stdout"]).strip()[-1000:]
    if done["rc"] in (126, 127):
        raise AnsibleActionFail(
            f"{name}: there is no Python to run on this node ({said}); "
            "install python3 there, or set ansible_python_interpreter"
        )
    raise AnsibleActionFail(f"{name}: the node's answer is not ours (exit code {done['rc']}): {said}")

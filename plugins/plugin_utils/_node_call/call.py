# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run this collection's code on a node in one round trip.

An Ansible module costs the node an interpreter with a large library, and the controller an archive; here a few files
that need only the standard library are sent to a bare interpreter's standard input. No part of the request is ever in
argv. The command is one short line, since the user's login shell reads it: csh accepts no newline in quotes and expands
`!` everywhere, and fish interprets backslashes in single quotes.
"""

from __future__ import annotations

import binascii
import contextvars
import functools
import json
import math
import queue
import re
import shlex
import threading
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.module_utils._files.bounded import parse_json
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    CALL_TIMEOUT,
    NODE_CALL_GRACE_PERIOD,
    SIGNAL_CHECK_INTERVAL,
)

Item = TypeVar("Item")
PACKAGE = "ansible_collections.muster.training.plugins.module_utils"
MODULE_UTILS = Path(__file__).resolve().parents[2] / "module_utils"
REPLY_MARK = "MUSTER-ANSWER "
STDIN_NOT_SENT = "could not be sent"
"""Ansible's message, which replaces that of ssh if ssh exits before reading its standard input."""
KEEP_ALIVE = "-o ServerAliveInterval=5 -o ServerAliveCountMax=3"
# Fields of a task's result with which an action changes ansible-playbook's inventory, facts, statistics or warnings.
ORDERS = re.compile(r"_?ansible_.*|add_host|add_group|deprecations|exception|invocation|results|warnings", re.DOTALL)
# The first line of standard input is BOOTSTRAP as a single statement, which reads the rest.
FIRST_LINE = "import sys; exec(sys.stdin.buffer.readline())"
# Reads {"sources": the text of each module, packed, "main": module, "request": ..., "packed": packed fields of the
# request, "mark": ..., "limit": ..., "read_only": ...}, makes the modules importable under the collection's name and
# prints the mark with the result of main's main(). Compiles only imported modules. A call that only reads ends when
# nobody awaits its output any more: the kernel sends a signal when the other end of standard output closes.
BOOTSTRAP = f"""
import binascii, json, sys, zlib
from _frozen_importlib import ModuleSpec
call = json.loads(sys.stdin.buffer.read())
def unpack(text):
    return json.loads(zlib.decompress(binascii.a2b_base64(text)))
if call["limit"]:
    import signal; signal.alarm(call["limit"])
if sys.version_info < (3, 8):
    print(call["mark"] + json.dumps({{"error": "Python %d.%d is too old" % sys.version_info[:2]}})); sys.exit()
if call["read_only"]:
    import fcntl, os, select, signal
    output = select.poll(); output.register(1, 0)
    def end_without_reader(*_signal):
        if output.poll(0): os._exit(1)
    signal.signal(signal.SIGIO, end_without_reader)
    fcntl.fcntl(1, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | os.O_ASYNC)
    end_without_reader()
for name, text in call["packed"].items():
    call["request"][name] = unpack(text)
sources = {{{PACKAGE!r} + "." + name: source for name, source in unpack(call["sources"]).items()}}
packages = {{name.rsplit(".", depth)[0] for name in sources for depth in range(1, name.count(".") + 1)}}
class SentModules:
    def find_spec(self, name, path=None, target=None):
        if name in sources or name in packages:
            return ModuleSpec(name, self, is_package=name in packages)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__name__
        exec(compile(sources.get(name, ""), name[{len(PACKAGE) + 1}:] + ".py", "exec"), module.__dict__)
sys.meta_path.insert(0, SentModules())
name = {PACKAGE!r} + "." + call["main"]
try:
    __import__(name)
    print(call["mark"] + json.dumps(sys.modules[name].main(call["request"])))
finally:
    if call["read_only"]:  # at its end the interpreter restores the default of the signal, which would kill it
        signal.signal(signal.SIGIO, signal.SIG_IGN)
"""
IMPORT = re.compile(
    rf"^ *from {re.escape(PACKAGE)}(?P<within>[.\w]*) import (?:\((?P<names>[^)]*)\)|(?P<name>.*))", re.MULTILINE
)
TYPE_CHECKING_BLOCK = re.compile(r"^if TYPE_CHECKING:.*\n(?:(?: .*)?\n)*", re.MULTILINE)


class NodeRequestError(AnsibleActionFail):
    """The code on a node rejected the request with a message. Retrying would be useless."""


def module_file(module: str) -> Path:
    """Return the file of one of this collection's module_utils by its name, such as "_run.start"."""
    return MODULE_UTILS / (module.replace(".", "/") + ".py")


@functools.cache
def module_source(module: str) -> str:
    """Return the source text of one of this collection's module_utils."""
    return module_file(module).read_text(encoding="utf-8")


def imported_modules(module: str) -> set[str]:
    """Return the module_utils that a module imports, except those imported only for type checking."""
    modules = set()
    for match in IMPORT.finditer(TYPE_CHECKING_BLOCK.sub("", module_source(module))):
        package = match["within"].strip(".")
        for imported in re.split(r",\s*", (match["names"] or match["name"]).strip(" \n,")):
            name = f"{package}.{imported.split()[0]}".strip(".")  # a module in a package, or a name in a module
            modules.add(name if module_file(name).is_file() else package)
    return modules


@functools.cache
def required_modules(module: str) -> tuple[str, ...]:
    """Return all module_utils that a module needs, including itself, from their import statements."""
    modules, queue = set(), {module}
    while queue:
        current = queue.pop()
        modules.add(current)
        queue |= imported_modules(current) - modules
    return tuple(sorted(modules))


@dataclass(frozen=True)
class PackedTexts:
    """Many texts in a field of a request, compressed. The code on the node receives them as a dict."""

    data: str


def pack_texts(texts: Mapping[str, str]) -> PackedTexts:
    """Compress texts to about a quarter of their size, because they are sent to each node."""
    compressed = zlib.compress(json.dumps(texts).encode(), 1)
    return PackedTexts(binascii.b2a_base64(compressed, newline=False).decode())


@functools.cache
def packed_sources(module: str) -> str:
    """Return the sources of a module and of all modules that it needs, packed."""
    return pack_texts({name: module_source(name) for name in required_modules(module)}).data


def prepare_calls(*modules: str) -> None:
    """Read in advance the sources that calls of these modules send to nodes.

    Plugins call this when Ansible loads them: otherwise each of the processes that Ansible starts, one per node, would
    read the sources again, in 0.01 s of CPU time.
    """
    for name in {name for module in modules for name in required_modules(module)}:
        module_source(name)


def interpreter_assignment(task_vars: Mapping[str, Any], template: Any) -> str:
    """Return a shell assignment of $P, the interpreter for the code: the configured one, otherwise the system
    interpreter.
    """
    configured = template(task_vars.get("ansible_python_interpreter") or "")
    if configured and not str(configured).startswith("auto"):
        return f"P={shlex.quote(str(configured))}"
    return "P=$(command -v /usr/bin/python3 || command -v python3) || P=/usr/bin/python3"


def shell_command(interpreter: str) -> str:
    """Return the command line that runs standard_input(), for any login shell.

    interpreter: see interpreter_assignment().
    """
    return f'{interpreter}; exec "$P" -I -S -c "{FIRST_LINE}"'


def standard_input(
    module: str, request: Mapping[str, Any], mark: str = REPLY_MARK, limit: float = 0, read_only: bool = False
) -> bytes:
    """Return the input for shell_command(): BOOTSTRAP on one line, then the module with its imports, and the request.

    Args:
        module: its name, such as "_run.dispatch".
        request: values are JSON or PackedTexts.
        mark: prefix of the reply's line.
        limit: seconds after which the kernel ends the process on the node; 0: never.
        read_only: whether the call changes nothing, so that it may end as soon as nobody awaits its reply.
    """
    packed = {name: value.data for name, value in request.items() if isinstance(value, PackedTexts)}
    plain = {name: value for name, value in request.items() if name not in packed}
    call: dict[str, Any] = {"sources": packed_sources(module), "main": module, "request": plain, "packed": packed}
    call |= {"mark": mark, "limit": int(limit), "read_only": read_only}
    return f"exec({BOOTSTRAP!r})\n{json.dumps(call)}".encode()


def keep_alive(connection: Any) -> None:
    """Make ssh detect an unreachable node within 15 s, regardless of ansible.cfg: ssh uses the first value of an
    option.
    """
    if connection.transport == "ssh":
        ssh_args = connection.get_option("ssh_args") or ""
        if not ssh_args.startswith(KEEP_ALIVE):
            connection.set_option("ssh_args", f"{KEEP_ALIVE} {ssh_args}".strip())


def execute(action: ActionBase, command: str, data: bytes) -> dict[str, Any]:
    """Run a command with the given standard input on the action's node, as the login user or the become user.

    Raise AnsibleConnectionFailure with ssh's own message if the node is unreachable.
    """
    try:
        result: dict[str, Any] = action._low_level_execute_command(command, in_data=data, sudoable=True)
    except AnsibleConnectionFailure as error:
        if STDIN_NOT_SENT not in str(error):
            raise
        # retry without standard input
        action._low_level_execute_command("true", sudoable=True)
        result = action._low_level_execute_command(command, in_data=data, sudoable=True)
    return result


def next_item(items: queue.Queue[Item] | queue.SimpleQueue[Item], timeout: float = math.inf) -> Item:
    """Return the next item of a queue. Raise queue.Empty after a timeout in seconds.

    Python handles signals in its main thread, which learns of one that the kernel gave to another thread only when it
    wakes up.
    """
    deadline = time.monotonic() + timeout
    in_main_thread = threading.current_thread() is threading.main_thread()
    while True:
        remaining = max(0.0, deadline - time.monotonic())
        wait = min(remaining, SIGNAL_CHECK_INTERVAL if in_main_thread else threading.TIMEOUT_MAX)
        try:
            return items.get(timeout=wait)
        except queue.Empty:
            if wait == remaining:
                raise


def execute_within(timeout: float, name: str, action: ActionBase, command: str, data: bytes) -> dict[str, Any]:
    """Return the result of execute(). Raise AnsibleConnectionFailure if it takes longer than a timeout in seconds.

    It runs in a thread, which is then abandoned: nothing else ends a call whose node keeps the connection alive.
    """
    outcomes: queue.Queue[dict[str, Any] | Exception] = queue.Queue()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcomes.put(context.run(execute, action, command, data))
        except Exception as error:  # passed on to the waiting thread, whatever it is
            outcomes.put(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        outcome = next_item(outcomes, timeout)
    except queue.Empty:
        raise AnsibleConnectionFailure(
            f"{name} is not responding: it accepts connections, but sent no reply within {timeout:g} s. Processes "
            f"on it may be waiting for a disk or mount: list them with ansible {name} -m shell -a 'ps -eo "
            "pid,stat,wchan,args'"
        ) from None
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def parse_reply(text: str) -> dict[str, Any] | None:
    """Parse a reply from a line of a node's output; return None if it is incomplete or not a reply."""
    try:
        reply = parse_json(text)
    except ValueError:
        return None
    return strip_orders(reply) if isinstance(reply, dict) else None


def strip_orders(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reply without ORDERS: plugins return replies as task results, and nodes must not control Ansible.

    With add_host, a node could change the variables of other hosts, and so the commands that are run on this machine.
    """
    return {name: value for name, value in reply.items() if not ORDERS.fullmatch(name)}


def call_node(
    action: ActionBase,
    module: str,
    request: Mapping[str, Any],
    task_vars: Mapping[str, Any],
    timeout: float = CALL_TIMEOUT,
) -> dict[str, Any]:
    """Run main(request) from one of the module_utils, such as "_run.dispatch", on the node, and return its reply.

    request: {"read_only": True} in it if it changes nothing, see standard_input(). timeout: seconds until a node that
    sent no reply counts as not responding.

    Raises:
        AnsibleConnectionFailure: the node is unreachable or does not respond.
        NodeRequestError: the code on the node rejected the request.
        AnsibleActionFail: no reply: no Python, no memory, no new process.
    """
    name = task_vars["inventory_hostname"]
    if action._task.delegate_to:
        name = action._task.delegate_to
        task_vars = task_vars.get("ansible_delegated_vars", {}).get(name, task_vars)
    keep_alive(action._connection)
    command = shell_command(interpreter_assignment(task_vars, action._templar.template))
    limit = timeout + NODE_CALL_GRACE_PERIOD
    data = standard_input(module, request, limit=limit, read_only=bool(request.get("read_only")))
    result = execute_within(timeout, name, action, command, data)
    for line in result["stdout"].splitlines():
        if line.startswith(REPLY_MARK):
            reply = parse_reply(line[len(REPLY_MARK) :])
            if reply is None:  # the node's process was killed while writing
                break
            if reply.get("error"):
                raise NodeRequestError(f"{name}: {reply['error']}")
            return reply
    output = (result["stderr"] or result["stdout"]).strip()[-1000:]
    if result["rc"] in (126, 127):
        raise AnsibleActionFail(
            f"{name}: no Python interpreter on this node ({output}); "
            "install python3 there, or set ansible_python_interpreter"
        )
    raise AnsibleActionFail(f"{name}: unexpected reply from the node (exit code {result['rc']}): {output}")

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a rank wait for a debugger when it starts, and make the other ranks wait for that rank without a timeout.

A copy of this file is ``hooks/debug_rank.py`` in the run directory of a run that was launched with launch_debug_rank.
stack_hook.py executes it in each Python process of the job. Only the process of the debugged rank imports debugpy. In
all others breakpoint() does nothing, so it can stay in a script that all ranks execute.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers recognize; importing typing would cost each rank a few milliseconds
    from typing import Any, Callable

SETTINGS = "debug.json"  # next to this file
STATE = "debugger.json"  # in the run directory: what the rank is waiting for
TARGET = "torch.distributed.distributed_c10d"
DEFAULTS = ("default_pg_timeout", "default_pg_nccl_timeout")
FUNCTIONS = ("init_process_group", "new_group")
NO_DEBUGGER_EXIT = 78  # sysexits' EX_CONFIG


def raise_timeout(function: Callable[..., Any], least: Any) -> Callable[..., Any]:
    """Wrap a torch function to raise a timeout set by its caller to at least this value."""
    import functools
    import inspect

    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        bound = signature.bind(*arguments, **options)
        timeout = bound.arguments.get("timeout")
        if timeout is not None and timeout < least:
            bound.arguments["timeout"] = least
        return function(*bound.args, **bound.kwargs)

    return wrapper


def extend_timeouts(module: Any, seconds: float) -> None:
    """Extend the timeouts of collectives in torch's module."""
    from datetime import timedelta

    least = timedelta(seconds=seconds)
    for name in DEFAULTS:
        if getattr(module, name, None) is not None:
            setattr(module, name, least)
    for name in FUNCTIONS:
        if hasattr(module, name):
            setattr(module, name, raise_timeout(getattr(module, name), least))


class TimeoutExtender:
    """An import hook that extends the timeouts of torch.distributed when the job imports it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the module's spec, with a loader that extends the timeouts, or None for other modules."""
        if name != TARGET:
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            extend_timeouts(module, self.seconds)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def write_state(directory: str, state: str, port: int) -> None:
    """Tell the supervisor what the rank is waiting for."""
    path = os.path.join(directory, STATE)
    with open(path + ".tmp", "w", encoding="utf-8") as stream:
        json.dump({"state": state, "port": port, "pid": os.getpid()}, stream)
    os.replace(path + ".tmp", path)


def wait_for_debugger(directory: str, rank: int, port: int) -> None:
    """Wait until a debugger is attached; end the process if none can be attached."""
    try:
        os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
        debugpy = importlib.import_module("debugpy")
        debugpy.configure(subProcess=False)  # data loaders continue
        debugpy.listen(("127.0.0.1", port))
    except Exception as error:
        if isinstance(error, ImportError):
            reason = "debugpy is not installed in the job's environment: add debugpy to its requirements, then run"
            reason += " ./muster site --tags python_env"
        else:
            reason = f"port {port} cannot be used ({error}): choose a different one with -e debug_port=PORT"
        sys.stderr.write(f"muster: no debugger for rank {rank}: {reason}\n")
        sys.stderr.flush()
        os._exit(NO_DEBUGGER_EXIT)
    write_state(directory, "waiting", port)
    debugpy.wait_for_client()
    write_state(directory, "attached", port)


def main(directory: str, rank_process: str) -> None:
    """Prepare this process. rank_process: LOCAL_RANK:PID of the rank that this process is or belongs to, or ""."""
    with open(os.path.join(directory, "hooks", SETTINGS), encoding="utf-8") as stream:
        settings = json.load(stream)
    sys.meta_path.insert(0, TimeoutExtender(float(settings["timeout"])))
    if rank_process == f"{settings['local_rank']}:{os.getpid()}":
        wait_for_debugger(directory, int(settings["rank"]), int(settings["port"]))
    else:
        sys.breakpointhook = lambda *_arguments, **_options: None

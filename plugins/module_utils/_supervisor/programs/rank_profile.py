# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profile some steps of a rank with torch.profiler, without changing the job's script.

A copy of this file is ``hooks/rank_profile.py`` in each node's run directory. When the supervisor sends PROFILE_SIGNAL,
the handler of stack_hook.py executes it in the rank, once, and calls handle_request() each time. A step ends when an
optimizer steps. Profiling begins and ends between two steps; a request to finish ends it immediately. The process
writes its trace and state to ``profiles/ID``. It never breaks a job: every error is reported there.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each rank a few milliseconds
    from typing import Any

REQUEST = "profile.json"  # in the run directory; written by the supervisor
PROFILES = "profiles"  # in the run directory, with a directory for each profile
MAX_REQUEST = 65536  # bytes
MAX_STEPS = 1000


def is_imported(name: str) -> bool:
    """Return whether a module is fully imported, because the signal may have interrupted its import."""
    module = sys.modules.get(name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


class RankProfile:
    """A profile of this process."""

    def __init__(self, directory: str, identifier: str, steps: int) -> None:
        self.identifier = identifier
        self.steps = steps
        self.path = os.path.join(directory, PROFILES, identifier, str(os.getpid()))
        self.ends: list[float] = []  # when the profiled steps ended, preceded by when the profile started
        self.optimizer: Any = None  # the optimizer whose steps are counted
        self.profiler: Any = None
        self.removable: Any = None  # torch's handle for the hook
        self.is_over = False

    def begin(self) -> None:
        """Wait for the end of a step once torch is imported; until then, this is called repeatedly."""
        if not is_imported("torch"):
            self.report("importing")
            return
        optimizer = importlib.import_module("torch.optim.optimizer")
        self.removable = optimizer.register_optimizer_step_post_hook(self.after_step)
        self.report("waiting")

    def after_step(self, optimizer: Any, *_arguments: Any) -> None:
        """Start after a step, and stop after enough steps of the same optimizer, because a model may have several."""
        try:
            self.optimizer = self.optimizer or optimizer
            if optimizer is not self.optimizer or self.is_over:
                return
            if self.profiler is None:
                self.start_profiler()
            else:
                self.ends.append(time.time())
            if len(self.ends) > self.steps:
                self.finish()
        except Exception as error:
            self.fail(error)

    def start_profiler(self) -> None:
        """Start torch's profiler."""
        profiler = importlib.import_module("torch.profiler").profile()
        profiler.start()
        self.profiler = profiler
        self.ends.append(time.time())

    def finish(self) -> None:
        """Stop profiling, and write the trace of the steps so far."""
        self.is_over = True
        if self.removable is not None:
            self.removable.remove()
        if self.profiler is None:
            reason = (
                "the process has not imported torch" if self.removable is None else ("no optimizer steps were taken")
            )
            self.report("failed", reason)
            return
        profiler, self.profiler, self.optimizer = self.profiler, None, None
        profiler.stop()
        if len(self.ends) < 2:
            self.report("failed", "no step has ended")
            return
        temporary = self.path + ".tmp.json"
        profiler.export_chrome_trace(temporary)
        os.replace(temporary, self.path + ".trace.json")
        self.report("profiled")

    def fail(self, error: BaseException) -> None:
        """Report an error; the job continues."""
        self.is_over = True
        try:
            if self.removable is not None:
                self.removable.remove()
            self.report("failed", type(error).__name__ + ": " + str(error)[:500])
        except Exception as further_error:
            sys.muster_profile_error = further_error  # type: ignore[attr-defined]

    def report(self, state: str, error: str = "") -> None:
        """Write the profile's state."""
        with open(self.path + ".tmp", "w", encoding="utf-8") as stream:
            json.dump({"state": state, "error": error, "steps": self.ends}, stream)
        os.replace(self.path + ".tmp", self.path + ".json")


CURRENT: list[RankProfile] = []  # this process's newest profile


def resume(current: RankProfile, finish: bool) -> None:
    """Finish a profile if requested; otherwise start it if it had to wait until torch was imported."""
    try:
        if finish:
            current.finish()
        elif current.removable is None:
            current.begin()
    except Exception as error:
        current.fail(error)


def handle_request(directory: str) -> None:
    """Start the requested profile, or finish it if requested."""
    with open(os.path.join(directory, REQUEST), encoding="utf-8") as stream:
        request = json.loads(stream.read(MAX_REQUEST))
    identifier, steps = str(request["id"]), int(request["steps"])
    current = CURRENT[0] if CURRENT else None
    if current is not None and current.identifier == identifier:
        if not current.is_over:
            resume(current, request["finish"])
        return
    if current is not None and not current.is_over:
        current.finish()  # torch has only one profiler
    CURRENT[:] = [RankProfile(directory, identifier, min(steps, MAX_STEPS))]
    resume(CURRENT[0], False)

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Describe the effects of Ctrl-C, and how to continue."""

from __future__ import annotations

import os
import signal
import time

READING = "nothing was changed"
CONTINUING = "completed work is kept; run the same command again to resume from there"
COSTING = (
    "machines may exist and cost money: ansible-playbook cost.yml shows them; run the same command again to continue"
)
STATE_AFTER = {
    **dict.fromkeys(("ping", "check", "preflight", "status", "logs", "stacks"), READING),
    **dict.fromkeys(("report", "diff", "shell", "cost"), READING),
    **dict.fromkeys(("provision", "teardown", "image"), COSTING),
    "launch": "nothing was started",
    "page": "the page is closed; runs are not affected",
    "benchmark": "nothing was started",
    "profile": "the run continues, and no profile was copied here; run the same command again to request a new one",
    "save": "the ranks may not have been asked to save: run the same command again to ask them",
    "stop": "the run may still be active: ansible-playbook status.yml shows its state",
}
"""The state after an interruption, by playbook; all other playbooks continue where they stopped."""
RUNS_TESTS = ("site",)
"""Playbooks that launch runs only to verify what they install."""
MARK = "muster: interrupted"
"""A line on stderr that tells ./muster that the interruption has already been explained."""
STATE_VARIABLE = "MUSTER_STATE_FILE"
"""Environment variable with the file for the message that ./muster shows if this process cannot explain it itself."""

STUCK_SECONDS = 5.0
"""How long an interrupted ansible-playbook may continue without worker processes; usually it ends within 0.5 s."""


def interrupt_if_stuck(pid: int) -> None:
    """Interrupt a process again whenever it has been without workers for STUCK_SECONDS.

    Ansible waits forever if Ctrl-C ended a worker while it was sending a message, and so held the lock of the queue.
    """
    # only after Ctrl-C: importing it takes 5 ms
    from ansible_collections.muster.training.plugins.module_utils._run.processes import descendants

    since = time.monotonic()
    while True:
        time.sleep(STUCK_SECONDS / 10)
        if descendants(pid):
            since = time.monotonic()
        elif time.monotonic() - since > STUCK_SECONDS:
            os.kill(pid, signal.SIGINT)
            since = time.monotonic()


def describe_interruption(playbook: str, launched: bool = False) -> str:
    """Describe an interrupted playbook in one sentence. launched: whether it launched a run, which has since ended."""
    if not playbook:
        return "interrupted: nothing was started"
    state = (
        "its run had ended: ansible-playbook status.yml shows the result"
        if launched and playbook not in RUNS_TESTS
        else STATE_AFTER.get(playbook, CONTINUING)
    )
    return f"{playbook} was interrupted: {state}"

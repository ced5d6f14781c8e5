# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Processes that a signal ended."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.shared_remedies import (
    LESS_HOST_MEMORY,
)

TOPIC = "Signals and exit codes"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="killed",
        title="A process was killed from outside",
        example="Signal 9 (SIGKILL) received by PID ...",
        texts=(
            r"Signal 9 \(SIGKILL\) received by PID",
            r"failed \(exitcode: -9\)",
            r"exitcode {1,4}: -9\b",
            r"was killed by SIGKILL",
        ),
        cause="Something sent it SIGKILL, most often the kernel for lack of memory; if so, dmesg on the node shows it.",
        remedy=f"check free -g and dmesg on that node while the job runs; if it is memory: {LESS_HOST_MEMORY}",
        source="lzhxmu/CPPO#6",
        weak=True,
    ),
    CatalogueEntry(
        id="native-crash",
        title="A process crashed outside Python",
        example="Signal 11 (SIGSEGV) received by PID ...",
        texts=(
            r"Signal 11 \(SIGSEGV\) received by PID",
            r"was killed by SIGSEGV",
            r"Segmentation fault \(core dumped\)",
        ),
        cause="Compiled code accessed memory that it must not; mostly a package that was built for another torch, CUDA "
        "or Python.",
        remedy="""-e '{"launch_environment": {"PYTHONFAULTHANDLER": "1"}}' logs the line of Python where it happens; """
        "reinstall the package of that line; ansible-playbook preflight.yml compares the versions on all nodes",
        source="a run on one H200",
        weak=True,
    ),
)

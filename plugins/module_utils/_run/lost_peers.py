# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognize the errors of ranks that only lost a peer; used on nodes and the controller."""

from __future__ import annotations

import re

# What faulthandler prints for SIGABRT: it says no more than the signal.
BARE_ABORT = re.compile(r"Fatal Python error: Aborted\b")
# Errors of a rank that lost contact with a peer: a consequence, not a cause.
SECONDARY = re.compile(
    r"connection (was )?(closed|reset|refused)|broken pipe|remote process exited|peer .*(closed|gone)|"
    r"recvbytes failed|socket timeout|timed out|storeerror|failed to recv|NCCL communicator was aborted|"
    r"DistBackendError|DistNetworkError|ChildFailedError|Watchdog caught|SignalException|SIGTERMException|"
    r"killed by signal: Terminated",
    re.IGNORECASE,
)

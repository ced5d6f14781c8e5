# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The default of launch_silence_timeout exceeds any silence of a healthy node: docs/recovery.md explains it."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._run import timeouts
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_spec import DEFAULTS

# Each of these blocks a supervisor.
PAUSES = (
    timeouts.CONNECT_TIMEOUT,
    timeouts.STACKS_TIMEOUT,
    timeouts.RAS_TIMEOUT,
    timeouts.FLIGHT_RECORDER_TIMEOUT,
    timeouts.SHUTDOWN_QUERY_TIMEOUT,
    timeouts.PREEMPTION_QUERY_TIMEOUT,
    timeouts.CHECKPOINT_RESUME_TIMEOUT,
)
# seconds after which TCP retransmits lost data for the first time; the interval then doubles each time
FIRST_RETRANSMISSION = 0.2


def retransmissions(seconds: float) -> list[float]:
    """Return the times at which TCP repeats lost data, in seconds after it was first sent."""
    times: list[float] = []
    interval = FIRST_RETRANSMISSION
    while sum(times[-1:]) + interval <= seconds:
        times.append(sum(times[-1:]) + interval)
        interval *= 2
    return times


def test_silence_timeout_exceeds_the_longest_pause_of_a_supervisor() -> None:
    default = DEFAULTS["silence_timeout"]
    assert timeouts.HEARTBEAT_INTERVAL + timeouts.IDLE_STEP_INTERVAL + max(PAUSES) < default


def test_silence_timeout_exceeds_a_network_outage_of_four_seconds() -> None:
    default = DEFAULTS["silence_timeout"]
    after_outage = min(time for time in retransmissions(60.0) if time >= 4.0)
    assert timeouts.HEARTBEAT_INTERVAL + after_outage < default

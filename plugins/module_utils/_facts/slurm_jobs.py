# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the jobs that Slurm is running on this machine, from the titles of the processes it starts for them as root.

Needs neither Slurm's controller, which may be slow, nor Slurm's programs, which a container may lack.
"""

from __future__ import annotations

import os
import re

STEP = re.compile(rb"slurmstepd: \[([0-9]{1,12})\.")
ROOT = 0


def read_slurm_jobs(proc: str = "/proc", owner: int = ROOT) -> list[str]:
    """Return the job IDs of the jobs on this machine, in ascending order."""
    jobs = set()
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            with open(f"{proc}/{name}/cmdline", "rb") as stream:
                match = STEP.match(stream.read(64))
            # users can set the titles of their own processes
            if match and os.stat(f"{proc}/{name}").st_uid == owner:
                jobs.add(int(match.group(1)))
        except OSError:  # the process has ended
            continue
    return [str(job) for job in sorted(jobs)]

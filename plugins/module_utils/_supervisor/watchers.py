# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is watched beside the job on a node: mounts that may die, GPUs that may fail.

Private to this collection.
"""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.module_utils._run.processes import describe_exit

LOOK_INTERVAL = 10.0  # seconds between two looks at a mount
LOOK_PATIENCE = 10.0  # seconds a mount may take to answer
LAST_LOOK_PATIENCE = 2.0  # seconds that the report of a node that failed waits for a last look
# Exit code: the error number of looking into a directory, 0 where it answers.
LOOK = """
import os, sys
try:
    with os.scandir(sys.argv[1]) as entries:
        next(entries, None)
except OSError as error:
    os._exit(error.errno or 5)
"""
# A line of gpus.csv, and what stands there for the values of a GPU that is gone.
SAMPLE = re.compile(r"[0-9/]+ [0-9:.]+, (?P<index>[0-9]+), (?P<values>.*)")
GPU_FAILED = re.compile(r".*\[(GPU is lost|GPU requires reset)\]|[^0-9]*\[(Unknown Error)\][^0-9]*\Z")


def mount_points() -> set[str]:
    """Return where something is mounted; reading this never waits for a mount."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        fields = [line.split(" ")[4] for line in stream]
    return {re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field) for field in fields}


def read_sample(text: str, code: int, known: set[str]) -> tuple[set[str], str]:
    """Return the indices of the GPUs of one sample, and what is wrong with GPUs: "" where all are well.

    No index and no error: it tells nothing. text, code: what nvidia-smi wrote, in the columns of gpus.csv, and how it
    ended; known: the indices that an earlier sample has shown.
    """
    found, failed, words = set(), [], ""
    for line in text.splitlines():
        row = SAMPLE.match(line)
        if row is None:
            words = line.strip()[:2000] or words
            continue
        found.add(row["index"])
        gone = GPU_FAILED.match(row["values"])
        if gone:
            failed.append(f"GPU {row['index']}: {gone[1] or gone[2]}")
    if code:
        return found, words or f"nvidia-smi ended with {describe_exit(code)}"
    if not found or not text.endswith("\n"):  # nothing, or half of it, as on a full disk
        return set(), ""
    missing = sorted(known - found, key=int)
    if missing:
        failed.append(f"nvidia-smi no longer shows GPU {', '.join(missing)}{words and f' ({words})'}")
    return found, "; ".join(failed)

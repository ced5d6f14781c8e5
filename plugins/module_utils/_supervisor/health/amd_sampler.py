# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print a sample of the AMD GPUs in the columns of gpus.csv; run as a child process of the supervisor."""

from __future__ import annotations

import subprocess
import time

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import print_line
from ansible_collections.muster.training.plugins.module_utils._health.amd_smi import METRIC, parse_sample
from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import COLUMNS
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import SMI_TIMEOUT

# This runs on a node without an AnsibleModule, so its run_command is not available.
# pylint: disable=ansible-bad-function

MISSING = "[N/A]"  # how nvidia-smi prints a missing value
MAX_ERROR = 500  # characters


def format_sample(text: str, timestamp: str, selection: set[str]) -> list[str]:
    """Return a line per GPU. text: the output of METRIC; selection: GPU indexes, empty for all."""
    lines = []
    for sample in parse_sample(text):
        values = [sample[column] for column in COLUMNS if column != "timestamp"]
        fields = [MISSING if value is None else f"{value:.15g}" for value in values]
        if not selection or fields[0] in selection:
            lines.append(", ".join([timestamp, *fields]))
    return lines


def format_timestamp(now: float) -> str:
    """Return a UTC time in the format of nvidia-smi."""
    return time.strftime("%Y/%m/%d %H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}"


def main(arguments: list[str]) -> int:
    """Print a sample. arguments: the path of amd-smi and the GPU indexes, or none for all GPUs."""
    smi, *selection = arguments
    try:
        result = subprocess.run(
            [smi, *METRIC],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SMI_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print_line(f"amd-smi did not respond within {SMI_TIMEOUT:g} s")
        return 1
    except OSError as error:
        print_line(f"amd-smi cannot be started: {error.strerror}")
        return 1
    text = result.stdout.decode("utf-8", "replace")
    lines = format_sample(text, format_timestamp(time.time()), set(selection))
    for line in lines or [" ".join(text.split())[-MAX_ERROR:] or "amd-smi printed nothing"]:
        print_line(line)
    return result.returncode or (0 if lines else 1)

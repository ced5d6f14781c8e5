# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Open MPI's own map of a job, shown without launching it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence


def open_mpi_map(
    command: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[tuple[str, list[int]]], list[str]]:
    """Return the nodes and the global ranks on each in the map's order, and the output before them.

    command: orterun or mpirun with --do-not-launch --display-map.
    """
    nodes: list[tuple[str, list[int]]] = []
    before: list[str] = []
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        if process.stdout is not None:
            for line in process.stdout:
                node = re.match(r"\s*Data for node: (\S+)\s+Num slots: (\d+)", line)
                rank = re.search(r"Process rank: (\d+)", line)
                if node:
                    nodes.append((node[1], []))
                elif rank:
                    nodes[-1][1].append(int(rank[1]))
                elif nodes and re.match(r"\s*====", line):
                    break  # the map is complete; the rest is the end of a launch, which is not needed
                elif not nodes:
                    before.append(line)
        process.kill()
    return nodes, before

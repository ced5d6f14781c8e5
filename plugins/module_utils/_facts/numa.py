# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine's NUMA nodes, and the GPUs and CPUs of each."""

from __future__ import annotations

import glob
import os
import re

from ansible_collections.muster.training.plugins.module_utils._facts.gpus import PCI_DEVICES
from ansible_collections.muster.training.plugins.module_utils._files.text import read_value

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

NODES = "/sys/devices/system/node"
# contains a directory for each GPU that the driver manages, named by its PCI address
DRIVER_GPUS = "/proc/driver/nvidia/gpus"
MAX_GPUS = 256
CPU_LIST = re.compile(r"[0-9]{1,5}(?:-[0-9]{1,5})?(?:,[0-9]{1,5}(?:-[0-9]{1,5})?){0,2000}")


def read_numa(nodes: str = NODES, gpus: str = DRIVER_GPUS, devices: str = PCI_DEVICES) -> dict[str, Any]:
    """Return the NUMA node of each GPU, or -1 if unknown (gpus), and the CPUs of each node, such as "0-31" (cpus).

    GPUs are in the order of their PCI addresses, as in nvidia-smi.
    """
    addresses = sorted(os.path.basename(path).lower() for path in glob.glob(f"{gpus}/*"))[:MAX_GPUS]
    numbers = [read_value(f"{devices}/{address}/numa_node") for address in addresses]
    cpus = {}
    for path in glob.glob(f"{nodes}/node[0-9]*"):
        text = read_value(f"{path}/cpulist")
        if CPU_LIST.fullmatch(text):  # the list is empty for a NUMA node without CPUs
            cpus[os.path.basename(path)[len("node") :]] = text
    return {"gpus": [int(number) if number.isdigit() else -1 for number in numbers], "cpus": cpus}

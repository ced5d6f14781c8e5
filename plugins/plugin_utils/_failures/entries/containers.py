# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of container engines and images."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Containers"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="container-cuda-too-new",
        title="The image needs a newer NVIDIA driver",
        example="nvidia-container-cli: requirement error: unsatisfied condition: cuda>=11.0, please update "
        "your driver to a newer version",
        texts=(r"nvidia-container-cli: requirement error: unsatisfied condition",),
        cause="The image's CUDA is newer than the node's driver supports.",
        remedy="ansible-playbook site.yml --tags nvidia_driver -e nvidia_driver_cuda=12.4 installs a newer "
        "driver; or use an image with an older CUDA (launch_image)",
        source="NVIDIA/nvidia-docker#1442",
    ),
    CatalogueEntry(
        id="container-driver-not-loaded",
        title="The container finds no NVIDIA driver",
        example="nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
        texts=(r"nvidia-container-cli: initialization error",),
        cause="The node's NVIDIA driver is not loaded or does not work; the container is not the problem.",
        remedy="run nvidia-smi on that node. ansible-playbook site.yml --tags nvidia_driver installs and "
        "loads the driver, or says that the node needs a reboot",
        source="NVIDIA/nvidia-docker#1629",
    ),
    CatalogueEntry(
        id="container-toolkit-missing",
        title="The container engine cannot use GPUs",
        example='docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        texts=(
            r'could not select device driver "\w{0,20}" with capabilities',
            r"nvidia-container-cli: ",
            r"unknown or invalid runtime name: nvidia",
            r"unresolvable CDI devices nvidia\.com/gpu",
        ),
        cause="The NVIDIA Container Toolkit is missing on that node, or the container engine was not restarted "
        "after it was installed.",
        remedy="ansible-playbook site.yml --tags docker_engine installs the NVIDIA Container Toolkit and "
        "configures the engine for it",
        source="NVIDIA/nvidia-docker#1034",
    ),
)

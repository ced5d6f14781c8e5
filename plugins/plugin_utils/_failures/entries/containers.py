# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of container engines and images."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Containers"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="image-other-processor",
        title="The image is for a different CPU architecture",
        example="exec /usr/local/bin/python3: exec format error",
        texts=(r"exec (?:/\S{1,255}|user process caused):? \"?exec format error",),
        cause=(
            "The image was built for x86-64 and the node has an ARM processor (Grace, Jetson, Graviton), or vice versa."
        ),
        remedy=(
            "use an image that supports both architectures, or build it for the node with docker buildx build "
            "--platform linux/arm64,linux/amd64; NVIDIA's images (nvcr.io) are available for both. Run `uname "
            "-m` on the node to see its architecture"
        ),
        source="yiqingxyq/RepoST#2",
    ),
    CatalogueEntry(
        id="image-not-found",
        title="The container image cannot be pulled",
        example="Error response from daemon: pull access denied for ..., repository does not exist or may "
        "require 'docker login'",
        texts=(
            r"pull access denied for ",
            r"manifest for \S{1,300} not found: manifest unknown",
            r"toomanyrequests: You have reached",
        ),
        cause=(
            "The image has a different name or tag, is private, or is only on another node; or the registry limits "
            "downloads by anonymous users."
        ),
        remedy=(
            "check the name with `docker pull IMAGE` on that node; for a private image, or if the registry limits "
            "downloads, run docker login there as the job's user; push an image that you built to a registry, or load "
            "it on each node (docker save, docker load)"
        ),
        source="dineshreddy91/Occlusion_Net#10",
    ),
    CatalogueEntry(
        id="docker-not-running",
        title="Docker is not running on a node",
        example="docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker "
        "daemon running?",
        texts=(r"Cannot connect to the Docker daemon at ",),
        cause=(
            "The Docker engine is not installed on that node, has failed, or is listening elsewhere (rootless "
            "Docker, DOCKER_HOST)."
        ),
        remedy=(
            "run ansible-playbook site.yml --tags docker_engine -e docker_engine_enabled=true to install and start "
            "Docker; run `systemctl status docker` on the node to see why it failed, which is often due to a mistake "
            "in /etc/docker/daemon.json"
        ),
        source="microsoft/unilm#226",
    ),
    CatalogueEntry(
        id="docker-not-allowed",
        title="The job's user is not allowed to use Docker",
        example="permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
        texts=(r"permission denied while trying to connect to the (?:Docker daemon|docker API)",),
        cause=(
            "The user who launches the job is not in the docker group on that node, or has not logged in again since "
            "being added to it."
        ),
        remedy=(
            "run sudo usermod --append --groups docker USER on that node, then log in again; or use Podman or "
            "Apptainer, which do not need a group"
        ),
        source="NVIDIA/nvidia-docker#1138",
    ),
    CatalogueEntry(
        id="container-lost-gpus",
        title="A container has lost its GPUs",
        example="Failed to initialize NVML: Unknown Error",
        texts=(r"Failed to initialize NVML: Unknown Error",),
        cause=(
            "systemd reloaded its units (systemctl daemon-reload, or a package upgrade), and since then the running "
            "container has no access to the GPUs. The node itself is healthy."
        ),
        remedy=(
            'launch again, since a new container has access to its GPUs. To prevent this, set "exec-opts": '
            '["native.cgroupdriver=cgroupfs"] in /etc/docker/daemon.json and restart Docker, and disable '
            "unattended upgrades"
        ),
        source="NVIDIA/nvidia-container-toolkit#1227",
        refines=("cuda-unknown-error", "no-gpu"),
    ),
    CatalogueEntry(
        id="container-cuda-too-new",
        title="The image needs a newer NVIDIA driver",
        example="nvidia-container-cli: requirement error: unsatisfied condition: cuda>=11.0, please update "
        "your driver to a newer version",
        texts=(r"nvidia-container-cli: requirement error: unsatisfied condition",),
        cause="The image's CUDA version is newer than the versions that the node's driver supports.",
        remedy=(
            "run ansible-playbook site.yml --tags nvidia_driver -e nvidia_driver_cuda=12.4 to install a newer "
            "driver; or use an image with an older CUDA version (launch_image)"
        ),
        source="NVIDIA/nvidia-docker#1442",
    ),
    CatalogueEntry(
        id="container-driver-not-loaded",
        title="The container cannot find an NVIDIA driver",
        example="nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
        texts=(r"nvidia-container-cli: initialization error",),
        cause="The node's NVIDIA driver is not loaded or does not work; the container is not the problem.",
        remedy=(
            "run nvidia-smi on that node. Run ansible-playbook site.yml --tags nvidia_driver, which installs and "
            "loads the driver or says that the node needs a reboot"
        ),
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
        remedy=(
            "run ansible-playbook site.yml --tags docker_engine -e docker_engine_enabled=true to install the NVIDIA "
            "Container Toolkit and configure the engine for it"
        ),
        source="NVIDIA/nvidia-docker#1034",
    ),
    CatalogueEntry(
        id="user-without-name",
        title="The container's user ID has no user name",
        example="KeyError: 'getpwuid(): uid not found: 1042'",
        texts=(r"getpwuid\(\): uid not found: \d",),
        cause=(
            "The job's user ID has no user name, which torch or another package needs for a cache directory. Either "
            "a container is running with a user ID that its /etc/passwd does not list (--user), or the node's "
            "directory service (LDAP, SSSD) is not responding."
        ),
        remedy=(
            'set a user name and writable directories with -e \'{"launch_environment": {"USER": "me", "HOME": '
            '"/tmp/me", "TORCHINDUCTOR_CACHE_DIR": "/tmp/me/inductor"}}\'; or mount the node\'s list of users '
            "with launch_container_options: [--volume=/etc/passwd:/etc/passwd:ro]"
        ),
        source="pytorch/pytorch#140765",
        recoverable=True,
    ),
)

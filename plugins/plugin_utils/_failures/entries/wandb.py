# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of Weights & Biases."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Weights & Biases"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="wandb-timed-out",
        title="Weights & Biases does not answer in time",
        example="wandb.errors.errors.CommError: Run initialization has timed out after 90.0 sec.",
        texts=(r"Run initialization has timed out after",),
        cause="The node does not reach api.wandb.ai in time: it has no internet access, a proxy is in "
        "between, or the service is slow.",
        remedy="""-e '{"launch_environment": {"WANDB_MODE": "offline"}}' keeps the data on the node (wandb sync """
        "uploads it later); behind a proxy, set HTTPS_PROXY in launch_environment; for a slow service "
        "wandb.init(settings=wandb.Settings(init_timeout=300))",
        source="Wuziyi616/EventCLIP#8",
    ),
    CatalogueEntry(
        id="wandb-process",
        title="The background process of Weights & Biases does not start",
        example="wandb.errors.UsageError: Error communicating with wandb process",
        texts=(
            r"Error communicating with wandb process",
            r"Timed out waiting for wandb service to start",
            r"wandb service (?:failed to start|process exited)",
        ),
        cause="wandb starts a process of its own beside each rank, and it did not start or answer in time: "
        "many ranks start at once, the disk with HOME is slow, or the release is old.",
        remedy="call wandb.init on rank 0 only, and upgrade wandb in the job's requirements (ansible-playbook "
        """site.yml --tags python_env). -e '{"launch_environment": {"WANDB__SERVICE_WAIT": "300"}}' """
        "waits longer; old releases need settings=wandb.Settings(start_method='thread')",
        source="ultralytics/yolov5#5498",
    ),
    CatalogueEntry(
        id="wandb-key-missing",
        title="Weights & Biases has no API key",
        example="wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        texts=(r"api_key not configured",),
        cause="The job's user has no Weights & Biases API key on that node.",
        remedy="WANDB_API_KEY=... ansible-playbook site.yml --tags wandb; or for this job only "
        """-e '{"launch_pass_environment": ["WANDB_API_KEY"]}'; without it: """
        """-e '{"launch_environment": {"WANDB_MODE": "offline"}}'""",
        source="unslothai/unsloth#1914",
    ),
    CatalogueEntry(
        id="wandb-refused",
        title="Weights & Biases denies access to the project",
        example="wandb: ERROR Error while calling W&B API: permission denied (<Response [403]>)",
        texts=(
            r"Error while calling W&B API: [^\n]{0,60}(?:permission denied|not found)",
            r"wandb\.errors\.(?:\w{1,20}\.)?(?:CommError|AuthenticationError)",
        ),
        cause="The key is valid, but not for the entity or project named in the script.",
        remedy="set your own: wandb_entity and wandb_project, or WANDB_ENTITY and WANDB_PROJECT in launch_environment",
        source="wandb/wandb#1003",
    ),
)

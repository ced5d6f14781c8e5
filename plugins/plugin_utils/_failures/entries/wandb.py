# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of Weights & Biases."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Weights & Biases"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="wandb-unreached",
        title="The node cannot reach Weights & Biases in time",
        example="wandb.errors.CommError: Run initialization has timed out after 90.0 sec.",
        texts=(r"Run initialization has timed out after",),
        cause=(
            "wandb.init received no reply from the Weights & Biases server: the node has slow or no internet access, "
            "or needs a proxy."
        ),
        remedy=(
            'run offline with -e \'{"launch_environment": {"WANDB_MODE": "offline"}}\', and upload the run later '
            "with `wandb sync`; behind a proxy, set HTTPS_PROXY; to wait longer, use wandb.Settings(init_timeout=300)"
        ),
        source="wandb/wandb#5017",
        recoverable=True,
    ),
    CatalogueEntry(
        id="wandb-process",
        title="wandb's background process is not responding",
        example="wandb.errors.UsageError: Error communicating with wandb process",
        texts=(
            r"Error communicating with wandb process",
            r"Timed out waiting for wandb service to start",
            r"wandb service (?:failed to start|process exited)",
            r"ServiceStartTimeoutError\b",
            r"wandb backend process has shutdown",
        ),
        cause=(
            "wandb runs its own service process on the node, which did not start or has ended. Usually the cause "
            "is an old wandb version combined with forked processes."
        ),
        remedy=(
            "upgrade wandb in the job's requirements and run ansible-playbook site.yml --tags python_env, or start "
            'it in a thread with -e \'{"launch_environment": {"WANDB_START_METHOD": "thread"}}\'. To run without '
            "W&B, set WANDB_MODE=disabled in launch_environment"
        ),
        source="wandb/wandb#3018",
        recoverable=True,
    ),
    CatalogueEntry(
        id="wandb-key-missing",
        title="Weights & Biases has no API key",
        example="wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        texts=(r"api_key not configured",),
        cause="The job's user has no Weights & Biases API key on that node.",
        remedy=(
            "run WANDB_API_KEY=... ansible-playbook site.yml --tags wandb; or, for this job only, use -e "
            '\'{"launch_pass_environment": ["WANDB_API_KEY"]}\'. To run without W&B, use -e '
            '\'{"launch_environment": {"WANDB_MODE": "offline"}}\''
        ),
        source="unslothai/unsloth#1914",
        recoverable=True,
    ),
    CatalogueEntry(
        id="wandb-refused",
        title="Weights & Biases denies access to the project",
        example="wandb: ERROR Error while calling W&B API: permission denied (<Response [403]>)",
        texts=(
            r"Error while calling W&B API: [^\n]{0,60}(?:permission denied|not found)",
            r"wandb\.errors\.(?:\w{1,20}\.)?(?:CommError|AuthenticationError)"
            r"[^\n]{0,200}(?:permission|denied|403|404|not found)",
        ),
        cause="The key is valid, but not for the entity or project named in the script.",
        remedy=(
            "set your own entity and project: use wandb_entity and wandb_project, or WANDB_ENTITY and WANDB_PROJECT "
            "in launch_environment"
        ),
        source="wandb/wandb#1003",
        recoverable=True,
    ),
)

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of ranks that run different code or models, and of DistributedDataParallel."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Ranks out of step"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="collectives-differ",
        title="Ranks are at different points of the script",
        example="Detected mismatch between collectives on ranks",
        texts=(r"Detected mismatch between collectives on ranks",),
        cause="One rank calls a different collective, or the same one with another shape: a branch only some ranks "
        "take, a smaller last batch, metrics only rank 0 has.",
        remedy="make the same calls with the same shapes on each rank: drop_last=True, and no collective inside `if "
        "rank == 0`",
        source="modelscope/ms-swift#9443",
    ),
    CatalogueEntry(
        id="ddp-models-differ",
        title="The ranks have different models",
        example="DDP expects same model across all ranks, but Rank 0 has 686 params, while rank 1 has inconsistent 0 "
        "params",
        texts=(r"DDP expects same model across all ranks",),
        cause="The ranks built different models or froze different layers; with 0 params, a rank has ended or is "
        "elsewhere in the script.",
        remedy="use the same code and settings on each node (ansible-playbook preflight.yml compares the script); "
        "nothing in the model may depend on the rank. For 0 params, read that rank's log",
        source="NJU-PCALab/STAR#44",
    ),
    CatalogueEntry(
        id="ddp-unused-parameters",
        title="Parameters took no part in the loss",
        example="RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one",
        texts=(r"Expected to have finished reduction in the prior iteration",),
        cause="DistributedDataParallel waits for the gradient of each parameter, but some have none in this step.",
        remedy="DistributedDataParallel(..., find_unused_parameters=True), or freeze or remove unused parameters; "
        """-e '{"launch_environment": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}' names the parameters""",
        source="buxiangzhiren/DDCap#35",
    ),
    CatalogueEntry(
        id="process-group-missing",
        title="torch.distributed was not initialised",
        example="Default process group has not been initialized, please make sure to call init_process_group",
        texts=(r"Default process group has not been initialized",),
        cause="The script uses collectives, or a layer such as SyncBatchNorm, before init_process_group or without it.",
        remedy="call torch.distributed.init_process_group() first; frameworks need an option: --launcher pytorch "
        "(MMEngine), strategy='ddp' (Lightning)",
        source="open-mmlab/mmsegmentation#809",
        recoverable=True,
    ),
)

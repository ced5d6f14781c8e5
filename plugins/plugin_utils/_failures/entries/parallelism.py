# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of models that are sharded across ranks."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Split models"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="tensors-mixed-with-dtensors",
        title="Sharded and plain tensors are mixed in one operation",
        example="RuntimeError: aten.cat.default: got mixed torch.Tensor and DTensor, need to convert all "
        "torch.Tensor to DTensor before calling distributed operators!",
        texts=(r"[Gg]ot mixed torch\.Tensor and DTensor",),
        cause=(
            "FSDP2 and tensor parallelism store weights as DTensors, and an operation received one together with "
            "a plain tensor. The cause is a weight used outside the forward pass of its sharded module, a module "
            "left out of the plan, a mask or buffer, or a kernel from a package that does not support DTensors."
        ),
        remedy=(
            "call the module instead of using its weights directly, and also wrap the module that owns the "
            "weight with fully_shard; for individual operations, use distribute_tensor(x, mesh) or "
            'weight.full_tensor(). For attention, choose torch\'s implementation (attn_implementation="sdpa"); '
            "upgrade accelerate and transformers together"
        ),
        source="huggingface/accelerate#3565",
    ),
    CatalogueEntry(
        id="meta-tensor",
        title="A weight was never loaded",
        example="NotImplementedError: Cannot copy out of meta tensor; no data!",
        texts=(r"Cannot copy out of meta tensor; no data",),
        cause=(
            "The model was created without memory (on the meta device), and this weight had no values when it "
            "was moved: with fsdp_cpu_ram_efficient_loading, only rank 0 of each node or of the run loads the "
            "weights, and the other ranks expect to receive them; or the checkpoint lacks the weight."
        ),
        remedy=(
            "set fsdp_sync_module_states: true together with fsdp_cpu_ram_efficient_loading, or set both to "
            "false; otherwise call model.to_empty(device=...) and load all weights afterwards. Use the same "
            "versions of torch, transformers and accelerate on all nodes; to see which nodes differ, run "
            "ansible-playbook preflight.yml"
        ),
        source="huggingface/accelerate#2082",
    ),
    CatalogueEntry(
        id="device-map-distributed",
        title="A model that is spread across GPUs is trained with several ranks",
        example="ValueError: You can't train a model that has been loaded with `device_map='auto'` in any "
        "distributed mode.",
        texts=(
            r"You can't train a model that has been loaded (?:in \d-bit precision (?:on|with)|with "
            r"`device_map='auto'`)",
        ),
        cause=(
            "device_map='auto' spreads the model across all GPUs of the node, or puts it on the first one, although "
            "each rank has its own GPU."
        ),
        remedy=(
            'load it with device_map={"": int(os.environ["LOCAL_RANK"])} (also for 4-bit and 8-bit models), or '
            "without device_map under FSDP and DeepSpeed; to spread one model over the GPUs on purpose, start one "
            "process with -e nproc_per_node=1"
        ),
        source="huggingface/transformers#31557",
    ),
    CatalogueEntry(
        id="parallel-sizes",
        title="The number of ranks does not match the model's parallelism",
        example="RuntimeError: world_size (1) is not divisible by 2",
        texts=(
            r"world_size \(\d{1,7}\) is not (?:divisible by|equal to) ",
            r"world size \(?\d{1,7}\)? is not divisible by ",
        ),
        cause=(
            "The number of ranks must be a multiple of the product of the tensor, pipeline, context and expert "
            "parallel sizes, but this run has too few ranks, or a number that is not a multiple."
        ),
        remedy=(
            "start as many ranks as the sizes need (-e nodes=... and -e nproc_per_node=N), or reduce the sizes "
            "in the script (--tensor-model-parallel-size and so on). A world_size of 1 means that the launcher's "
            "variables did not reach the script: start it through muster's launcher, or with srun and one task "
            "per GPU"
        ),
        source="NVIDIA-NeMo/Speech#11480",
    ),
    CatalogueEntry(
        id="mesh-larger-than-run",
        title="The script expects more ranks than the run has",
        example="RuntimeError: Mesh should not be bigger than default world size, but found 9 ranks!",
        texts=(
            r"Mesh should not be bigger than default world size",
            r"new group's (?:rank should be within|world size should be less or equal to) the (?:the )?world.size "
            r"set by init_process_group",
        ),
        cause=(
            "A device mesh or process group in the script includes more ranks than this run started: its shape is "
            "hard-coded or set in the configuration, or ranks are missing."
        ),
        remedy=(
            "derive the shape from dist.get_world_size(), or start as many ranks as it needs with -e nodes=... and "
            "-e nproc_per_node=N"
        ),
        source="pytorch/pytorch#111452",
    ),
)

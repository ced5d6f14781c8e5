# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures caused by ranks that run different code or models, and failures of DistributedDataParallel."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.shared_remedies import CHECK_CALLS

TOPIC = "Ranks out of step"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="collectives-differ",
        title="Ranks are at different points of the script",
        example="Detected mismatch between collectives on ranks",
        texts=(r"Detected mismatch between collectives on ranks",),
        cause=(
            "One rank calls a different collective, or the same one with a different shape, because of a branch that "
            "only some ranks take, a smaller last batch, or metrics that only rank 0 has."
        ),
        remedy=(
            "make the same calls with the same shapes on each rank: set drop_last=True, and do not call a collective "
            "inside `if rank == 0`"
        ),
        source="modelscope/ms-swift#9443",
    ),
    CatalogueEntry(
        id="ddp-no-parameters",
        title="DDP receives nothing from a rank",
        example="DDP expects same model across all ranks, but Rank 0 has 686 params, while rank 1 has inconsistent 0 "
        "params",
        texts=(
            r"DDP expects same model across all ranks, but Rank \d{1,7} has \d{1,9} params, while rank \d{1,7} has "
            r"inconsistent 0 params",
        ),
        cause=(
            "DDP first compares the number of parameters, and it received nothing from the rank that is reported "
            "with 0. Either this first collective over NCCL moved no data between the nodes (wrong interface, "
            "wrong RoCE GID, or GPUs without peer access), or that rank has ended or is in a different "
            "collective. The models rarely differ."
        ),
        remedy=(
            "read that rank's log first. If it shows no error, run ansible-playbook preflight.yml to test the "
            'connections, and launch with -e \'{"launch_environment": {"NCCL_DEBUG": "WARN"}}\' to see what failed. '
            "On a single node, try NCCL_P2P_DISABLE=1; between nodes, try NCCL_IB_DISABLE=1. If that helps with "
            "RoCE, set NCCL_IB_GID_INDEX=3"
        ),
        source="NJU-PCALab/STAR#44",
        weak=True,
    ),
    CatalogueEntry(
        id="process-group-pickled",
        title="A process group cannot be copied or saved",
        example="TypeError: cannot pickle 'torch._C._distributed_c10d.ProcessGroup' object",
        texts=(r"[Cc]an(?:not|'t) pickle '?torch\._C\._distributed_c10d\.\w{1,40}'? object",),
        cause=(
            "The script copies or saves a whole model, optimizer or configuration that holds a process group, for "
            "example with copy.deepcopy(model) for an EMA, or with torch.save(model), after DDP, FSDP or "
            "deepspeed.initialize wrapped it."
        ),
        remedy=(
            "copy the model before it is wrapped; copy and save state dicts, not objects, with "
            "ema.load_state_dict(model.module.state_dict()) and torch.save(model.module.state_dict(), path); do "
            "not save the wrapped optimizer as an object in a checkpoint"
        ),
        source="pytorch/pytorch#73825",
    ),
    CatalogueEntry(
        id="ddp-layouts-differ",
        title="A parameter has a different memory layout on one rank",
        example="RuntimeError: params[182] in this process with sizes [256, 256, 1, 1] appears not to match strides of "
        "the same param in process 0.",
        texts=(r"params\[\d{1,6}\] in this process with sizes \[[\d, ]{0,80}\] appears not to match strides",),
        cause=(
            "This parameter's sizes are the same on all ranks, but its memory layout (strides) is not. On one "
            "rank it is channels_last or not contiguous, for example because a checkpoint or model was loaded or "
            "created in a different way there, or because the ranks have different torch versions."
        ),
        remedy=(
            "before DDP wraps the model, run `for p in model.parameters(): p.data = p.data.contiguous()` on all "
            "ranks; use the same memory_format, code and packages on each rank (ansible-playbook preflight.yml "
            "compares the nodes)"
        ),
        source="dongrunmin/RefDiff#2",
    ),
    CatalogueEntry(
        id="ddp-models-differ",
        title="The ranks have different models",
        example="RuntimeError: [1]: params[0] in this process with sizes [10, 3] appears not to match sizes of the "
        "same param in process 0",
        texts=(
            r"DDP expects same model across all ranks",
            r"params\[\d{1,6}\] in this process with sizes",
        ),
        cause="The ranks built different models, or froze different layers.",
        remedy=(
            "use the same code and settings on each node (ansible-playbook preflight.yml compares the script); make "
            "sure that no part of the model depends on the rank, such as a size derived from the rank's own data"
        ),
        source="liangyn22/MCUFormer#2",
    ),
    CatalogueEntry(
        id="ddp-unused-parameters",
        title="Some parameters did not contribute to the loss",
        example="RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one",
        texts=(
            r"Expected to have finished reduction in the prior iteration",
            r"parameters that were not used in producing the loss returned by training_step",
        ),
        cause="DistributedDataParallel waits for the gradient of each parameter, but some have none in this step.",
        remedy=(
            "use DistributedDataParallel(..., find_unused_parameters=True), or freeze or remove unused "
            'parameters; launch with -e \'{"launch_environment": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}\' to see '
            "the parameters' names"
        ),
        source="buxiangzhiren/DDCap#35",
    ),
    CatalogueEntry(
        id="process-group-twice",
        title="torch.distributed is initialized twice",
        example="RuntimeError: trying to initialize the default process group twice!",
        texts=(r"trying to initialize the default process group ?(?:twice!)?",),
        cause=(
            "init_process_group was called a second time in the same process, because the script calls it in "
            "addition to the framework (accelerate, DeepSpeed, MMEngine, Lightning), or because the main function is "
            "imported or called twice."
        ),
        remedy=(
            "leave init_process_group to the framework, or guard it with if not torch.distributed.is_initialized(): "
            '...; put the entry point under if __name__ == "__main__":'
        ),
        source="pytorch/pytorch#43536",
    ),
    CatalogueEntry(
        id="process-group-missing",
        title="torch.distributed was not initialized",
        example="Default process group has not been initialized, please make sure to call init_process_group",
        texts=(r"Default process group (?:has not been|is not) initialized",),
        cause=(
            "The script uses collectives, or a layer such as SyncBatchNorm, before calling init_process_group or "
            "without calling it."
        ),
        remedy=(
            "call torch.distributed.init_process_group() first; with a framework, set its own option, --launcher "
            "pytorch (MMEngine) or strategy='ddp' (Lightning)"
        ),
        source="open-mmlab/mmsegmentation#809",
        recoverable=True,
    ),
    CatalogueEntry(
        id="ddp-marked-twice",
        title="A parameter gets its gradient twice in one step",
        example="RuntimeError: Expected to mark a variable ready only once.",
        texts=(r"Expected to mark a variable ready only once",),
        cause=(
            "DistributedDataParallel expects one gradient per parameter per step. Reentrant gradient "
            "checkpointing, or a layer that is used twice, produces a second gradient."
        ),
        remedy=(
            'use non-reentrant gradient checkpointing, with gradient_checkpointing_kwargs={"use_reentrant": False} '
            "(Trainer) or torch.utils.checkpoint.checkpoint(..., use_reentrant=False); for a layer that is used in the "
            "same way in each step, use DistributedDataParallel(..., static_graph=True). Leave find_unused_parameters "
            "out"
        ),
        source="modelscope/ms-swift#3171",
    ),
    CatalogueEntry(
        id="collective-on-cpu",
        title="NCCL got a tensor that is not on a GPU",
        example="RuntimeError: No backend type associated with device type cpu",
        texts=(
            r"No backend type associated with device type cpu",
            r"Tensors must be CUDA and dense",
        ),
        cause=(
            "The nccl backend exchanges only dense tensors on a GPU, but the script calls a collective with a "
            "tensor that is on the CPU, a sparse tensor, or a model that was not moved to the GPU."
        ),
        remedy=(
            "move the tensor or model to the GPU first (.cuda(), or .to_dense()); or allow both kinds of tensors "
            'with init_process_group("cpu:gloo,cuda:nccl")'
        ),
        source="zai-org/CogVLM#328",
    ),
    CatalogueEntry(
        id="tensors-on-two-devices",
        title="Tensors in one operation are on different devices",
        example="RuntimeError: Expected all tensors to be on the same device, but found at least two devices, "
        "cuda:0 and cuda:1!",
        texts=(
            r"Expected all tensors to be on the same device",
            r"[Ee]xpected device cuda:\d{1,2}[^\n]{0,60} but got device ",
        ),
        cause=(
            'One process uses several GPUs, or a GPU and the CPU: device_map="auto" spreads the model over all '
            "GPUs even though each GPU has its own process, a device such as cuda:0 is hard-coded, or an input "
            "was not moved."
        ),
        remedy='load the model without device_map, or with device_map={"": int(os.environ["LOCAL_RANK"])}; '
        "call torch.cuda.set_device(local_rank) first and use .to(device) with that device everywhere",
        source="sengine-research/SpaceLM#5",
    ),
    CatalogueEntry(
        id="no-gradient",
        title="The loss does not depend on any trainable parameter",
        example="RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
        texts=(r"element 0 of (?:tensors|variables) does not require grad",),
        cause=(
            "No parameter that requires a gradient contributed to the loss: all parameters are frozen, or "
            "reentrant gradient checkpointing is used with adapters (LoRA), whose inputs need no gradient."
        ),
        remedy=(
            "with adapters, call model.enable_input_require_grads() before get_peft_model, or set "
            'gradient_checkpointing_kwargs={"use_reentrant": False}; check that some parameters have '
            "requires_grad=True and that the loss is not computed under torch.no_grad()"
        ),
        source="huggingface/peft#137",
    ),
    CatalogueEntry(
        id="ddp-modified-in-place",
        title="A tensor was changed before its gradient was computed",
        example="RuntimeError: one of the variables needed for gradient computation has been modified by an "
        "inplace operation",
        texts=(r"one of the variables needed for gradient computation has been modified by an inplace operation",),
        cause=(
            "With DDP, the model is usually called twice before backward, so the second call overwrites buffers, "
            "such as BatchNorm's, that the first call still needs. Otherwise, an operation changes a tensor in place."
        ),
        remedy=(
            "use DistributedDataParallel(..., broadcast_buffers=False); or call the model only once per backward "
            "pass. If the error also occurs in a single process, call torch.autograd.set_detect_anomaly(True) to "
            "find the operation (x += y, relu(inplace=True))"
        ),
        source="pytorch/pytorch#22095",
    ),
    CatalogueEntry(
        id="ddp-device-ids",
        title="DDP got a GPU number for a model that is not on that GPU",
        example="ValueError: DistributedDataParallel device_ids and output_device arguments only work with "
        "single-device/multiple-device GPU modules or CPU modules, but got device_ids [0], output_device 0, and "
        "module parameters {device(type='cpu')}.",
        texts=(r"device_ids and output_device arguments only work with",),
        cause=(
            "device_ids must name the one GPU that holds the whole model. The model was not moved to that GPU, is on "
            'the CPU because the node has no GPU, or is spread over several GPUs by device_map="auto".'
        ),
        remedy=(
            "call model.to(device) before DistributedDataParallel(model, device_ids=[local_rank]); on the CPU, leave "
            'device_ids out; load the model without device_map="auto"'
        ),
        source="pytorch/pytorch#100243",
    ),
    CatalogueEntry(
        id="process-group-device-id",
        title="init_process_group got a device that is not a GPU",
        example="ValueError: init_process_group device_id parameter must be an accelerator with an index",
        texts=(
            r"init_process_group device_id parameter must be",
            r"Please use a device_id with index",
            r"does not match the current compilation's accelerator support",
        ),
        cause=(
            "The script passes device_id=torch.device(...) to init_process_group, and the device is the CPU, has no "
            "index, or is of a type that this torch build does not support."
        ),
        remedy=(
            'pass device_id=torch.device("cuda", local_rank) on GPUs only, and leave device_id out on the CPU, as in '
            "device_id=device if device.type == 'cuda' else None"
        ),
        source="pytorch/pytorch#190432",
    ),
    CatalogueEntry(
        id="sync-batch-norm-on-cpu",
        title="SyncBatchNorm works on GPUs only",
        example="ValueError: SyncBatchNorm layers only work with GPU modules",
        texts=(
            r"SyncBatchNorm layers only work with GPU modules",
            r"SyncBatchNorm expected input tensor to be on (?:GPU|a GPU)",
        ),
        cause=(
            "The model has SyncBatchNorm layers, but is running on the CPU: the nodes have no GPU, torch cannot use "
            "it, or the model was not moved to it."
        ),
        remedy=(
            "on the CPU, use plain batch normalization: set sync_batchnorm=False (Lightning; with Hydra, "
            "trainer.sync_batchnorm=False), use BN instead of SyncBN (MMEngine), or leave convert_sync_batchnorm "
            "out. On GPUs, move the model first; run ansible-playbook preflight.yml to see whether torch can use them"
        ),
        source="open-mmlab/mmagic#133",
    ),
    CatalogueEntry(
        id="ddp-nothing-to-train",
        title="DDP got a model without trainable parameters",
        example="RuntimeError: DistributedDataParallel is not needed when a module doesn't have any parameter that "
        "requires a gradient.",
        texts=(
            r"DistributedDataParallel is not needed when a module doesn't have any parameters? that requires? a grad",
        ),
        cause=(
            "All parameters of the module are frozen (requires_grad=False), or it has none; it may be a teacher, "
            "a loss network, or a model whose trainable layers were not found by name."
        ),
        remedy=(
            "do not wrap frozen modules; calling model.to(device) is enough (leave them out of "
            "accelerator.prepare). If this is the model that you are training, check which parameters have "
            "requires_grad"
        ),
        source="pytorch/pytorch#45326",
    ),
    CatalogueEntry(
        id="gloo-sizes-differ",
        title="Ranks pass tensors of different sizes to gloo",
        example="[enforce fail at gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 256000 vs 128000",
        texts=(r"op\.preamble\.length <= op\.nbytes",),
        cause="A rank received more data than it expected: the ranks pass tensors of different sizes or types to the "
        "same "
        "collective, or are at different points of the script.",
        remedy=(
            "make the sizes equal on all ranks (drop_last=True, padding, the same model and configuration), or "
            f"use all_gather_object for objects; {CHECK_CALLS}"
        ),
        source="NVIDIA/nccl#1394",
    ),
)

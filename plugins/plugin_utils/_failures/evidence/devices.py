# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence about the devices of tensors, extensions without code for a GPU, and framework settings."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.gpus import FEWER_RANKS, OWN_GPU
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import RunFacts

TOPIC = "Devices, extensions and settings"
TWO_GPUS = r"found at least two devices, cuda:(?P<first>\d{1,3}) and cuda:(?P<second>\d{1,3})"
OWN_PACKAGES = ("torch", "torchvision", "torchaudio", "pytorch_lightning", "lightning", "accelerate", "transformers")

ASSERTED = ("device-side-assert", "cublas-failed", "launch-failure")  # errors that may follow a failed assertion


def is_extension(groups: Mapping[str, str], _facts: RunFacts) -> bool:
    """Return whether the error was raised by a package other than torch and frameworks written in Python."""
    return groups["package"] not in OWN_PACKAGES


def is_not_second_rank(_groups: Mapping[str, str], facts: RunFacts) -> bool:
    """Return whether a rank other than 1 failed, because rank 1 may also see a single GPU, as every rank does."""
    return facts.rank != 1


def has_different_rank_counts(_groups: Mapping[str, str], facts: RunFacts) -> bool:
    """Return whether the number of ranks differs between nodes."""
    return len(set(facts.slots)) > 1


def has_different_world_size(groups: Mapping[str, str], _facts: RunFacts) -> bool:
    """Return whether the batch sizes match a different number of ranks than DeepSpeed counted."""
    total, part = int(groups["total"]), int(groups["micro"]) * int(groups["steps"])
    return part > 0 and total > part and total % part == 0


def is_not_divisible(groups: Mapping[str, str], _facts: RunFacts) -> bool:
    """Return whether a global batch size is not a multiple of the sum of all ranks' batch sizes."""
    step = int(groups["micro"]) * int(groups["ranks"])
    return step > 0 and int(groups["total"]) % step > 0


RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="cublas-of-path",
        entries=("cublas-failed",),
        shows=(
            r"CUBLAS_STATUS_(?P<status>EXECUTION_FAILED|INVALID_VALUE|NOT_SUPPORTED)\b[^\n]{0,40} when calling "
            r"`(?P<call>cublasSgemm\w{0,30})",
        ),
        unless=r"Assertion `|device-side assert|out of memory|\d%\|[^\n]{0,120}[1-9]\d{0,8}/\d|"
        r"(?i:step|iter)\w{0,6}\W{1,4}[1-9]",
        cause=(
            "A plain fp32 matrix product failed ({call}), with no index out of range and before training had "
            "made any progress. Most likely the loaded cuBLAS is not the one bundled with torch, since "
            "LD_LIBRARY_PATH points to another CUDA toolkit. Otherwise an earlier error is the cause, such as an "
            "index outside an embedding, a label outside the classes, or a GPU that ran out of memory."
        ),
        remedy=(
            'clear LD_LIBRARY_PATH: launch with -e \'{{"launch_environment": {{"LD_LIBRARY_PATH": ""}}}}\', or '
            "remove the line in ~/.bashrc or the module that sets it. If it fails again, launch with -e "
            '\'{{"launch_environment": {{"CUDA_LAUNCH_BLOCKING": "1"}}}}\' to see whether an earlier operation is at '
            "fault, such as an index outside an embedding"
        ),
    ),
    EvidenceRule(
        id="gpu-of-mig",
        entries=("gpu-count-changed",),
        shows=(r"device=(?P<device>[1-9]\d{0,2}), num_gpus=1\b",),
        unless=r"environ\[['\"]CUDA_VISIBLE_DEVICES",
        cause=(
            "CUDA shows this process a single GPU, although torch counted more and the process requests GPU number "
            "{device}. Most likely the GPUs are partitioned (MIG), so a process can use only one slice. Otherwise "
            "CUDA_VISIBLE_DEVICES was changed after torch had counted the GPUs."
        ),
        remedy=(
            "run `nvidia-smi -L` on that node to list MIG slices. For training on whole GPUs, turn MIG off (sudo "
            "nvidia-smi -mig 0, then a reboot); NCCL cannot connect slices of one GPU. To use one slice, set "
            "CUDA_VISIBLE_DEVICES=MIG-UUID before Python starts. Without MIG, remove lines that set "
            "CUDA_VISIBLE_DEVICES in the script"
        ),
    ),
    EvidenceRule(
        id="driver-in-image",
        entries=("driver-combination", "driver-too-old-for-image"),
        shows=(
            r"The NVIDIA Driver is present, but CUDA failed to initialize|NVIDIA Release \d{2}\.\d{2}|"
            r"/usr/local/cuda[\d.-]{0,8}/compat",
        ),
        cause=(
            "The image has a newer CUDA version than the node's driver supports, and needs the compatibility "
            "libraries that it includes (/usr/local/cuda/compat). These libraries do not come first on the "
            "search path, usually because the image, the script or the job replaced LD_LIBRARY_PATH; or the "
            "driver is too old even for them."
        ),
        remedy=(
            "do not set LD_LIBRARY_PATH in launch_environment, the script or the Dockerfile, or only extend it "
            "(LD_LIBRARY_PATH=/my/lib:$LD_LIBRARY_PATH). Otherwise, update the driver (ansible-playbook site.yml "
            "--tags nvidia_driver), or use an image with the CUDA version of the current driver"
        ),
    ),
    EvidenceRule(
        id="assert-of-label",
        entries=ASSERTED,
        shows=(
            r"(?:nll_loss|NLLCriterion|Loss\.cu)[^\n]{0,300}Assertion "
            r"`(?P<condition>[^`'\n]{0,20}t(?:arget)? ?>= ?0[^`'\n]{1,80})['`] failed",
        ),
        cause=(
            "A label is negative or not less than the number of classes: the loss function's assertion "
            "{condition} failed. Labels must be between 0 and the number of classes - 1."
        ),
        remedy=(
            "give the model as many classes as the data has (num_labels, num_classes), number the labels from 0, and "
            "mark what is to be ignored with -100 (ignore_index). To find the invalid labels, add "
            "print(labels.min(), labels.max()) before the loss"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="assert-of-embedding",
        entries=ASSERTED,
        shows=(r"Assertion `(?P<condition>srcIndex < srcSelectDimSize)['`] failed",),
        cause=(
            "An ID is not less than the number of rows of an embedding ({condition}): the tokenizer produced a token "
            "that the model does not have, or a position exceeds the model's maximum text length."
        ),
        remedy=(
            "call model.resize_token_embeddings(len(tokenizer)) after adding tokens, and use the model's own "
            "tokenizer; for long texts, use truncation=True, max_length=.... To see which of these applies, add "
            "print(input_ids.max(), model.config.vocab_size) before the model is called"
        ),
    ),
    EvidenceRule(
        id="assert-of-probability",
        entries=ASSERTED,
        shows=(r"Assertion `(?P<condition>(?:input_val|target_val) >= zero && [^`'\n]{1,60})['`] failed",),
        cause=(
            "Binary cross entropy received a value outside the range 0 to 1 ({condition}): the outputs were not "
            "passed through a sigmoid, the outputs are NaN because training diverged, or the targets are not "
            "between 0 and 1."
        ),
        remedy=(
            "use binary_cross_entropy_with_logits on the outputs before the sigmoid, and check the targets. If "
            "this happens after many steps, the loss had already become NaN: use a smaller learning rate and "
            "gradient clipping"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="assert-of-sampling",
        entries=ASSERTED,
        shows=(
            r"Assertion `(?P<condition>probability tensor contains[^\n]{1,80}?|[^`\n]{0,60}val >= 0[^`\n]{0,60}|"
            r"cumdist\[size - 1\] > 0[^`\n]{0,60})['`] failed",
        ),
        cause=(
            "torch.multinomial received probabilities that are negative, NaN or all zero ({condition}): the logits "
            "overflowed, or training diverged."
        ),
        remedy=(
            "generate in bf16 or fp32 instead of fp16; use a smaller learning rate; add "
            "print(torch.isfinite(logits).all()) before sampling"
        ),
    ),
    EvidenceRule(
        id="memory-access-of-kernel",
        entries=("illegal-memory-access",),
        shows=(
            r'/(?:site|dist)-packages/(?P<package>(?!torch/|triton/)[A-Za-z]\w{0,60})/[^"\n]{1,200}", line \d{1,9}, in '
            r"[^\n]{1,100}\n[^\n]{0,300}\n(?:[^\n]{0,60}[~^]{2,100}\n)?"
            r'[^\n]{0,30}File "[^"\n]{1,300}/triton/(?:runtime|backends)/',
        ),
        cause=(
            "A Triton kernel in {package} most likely accessed memory beyond the end of a tensor. This is a bug in "
            "this version, which often appears only with large inputs (more than 2^31 elements overflow its 32-bit "
            "offsets)."
        ),
        remedy=(
            "upgrade {package} and triton; until then, use a smaller micro batch, shorter sequences or fewer tokens "
            'per GPU. To confirm which kernel it is, launch with -e \'{{"launch_environment": '
            '{{"CUDA_LAUNCH_BLOCKING": "1"}}}}\''
        ),
    ),
    EvidenceRule(
        id="extension-without-kernel",
        entries=("no-kernel-image",),
        shows=(
            r'File "[^"\n]{1,300}/(?:site|dist)-packages/(?P<package>[A-Za-z]\w{0,60})/[^"\n]{1,200}", line \d{1,9}, '
            r"in \w{1,80}\n"
            r"[^\n]{0,200}\n(?:[^\n]{0,60}[~^]{2,100}\n)?[^\n]{0,60}(?:Runtime|Accelerator)Error: (?:CUDA error: )?no "
            r"kernel "
            r"image",
        ),
        cause=(
            "The compiled code of {package} has no kernel for this GPU: it was built on a machine with another GPU "
            "model, or for a list of architectures that does not include this one. torch itself is not the problem."
        ),
        remedy=(
            "rebuild {package} on a node with this GPU: TORCH_CUDA_ARCH_LIST=$(python -c 'import torch; "
            'print("%d.%d" % torch.cuda.get_device_capability())\') pip install --force-reinstall --no-deps '
            "--no-cache-dir --no-binary {package} --no-build-isolation {package}; list all architectures if the "
            "nodes have several GPU models"
        ),
        condition=is_extension,
        certain=True,
    ),
    EvidenceRule(
        id="direct-copies-refused",
        entries=("invalid-device-ordinal", "nccl-cuda-error"),
        # Other errors may have arisen before and be reported there: an illegal access, a full memory.
        shows=(
            r"(?<!hipify/src/)transport/(?P<way>p2p|shm)\.cc:\d{1,5} NCCL WARN Cuda failure (?:\d{1,4} )?'(?P<reason>"
            r"invalid device ordinal|invalid argument|invalid resource handle|invalid device context|"
            r"operation not (?:supported|permitted)|OS call failed or operation not supported on this OS|"
            r"mapping of buffer object failed)'",
        ),
        cause=(
            "CUDA cannot share GPU memory between the processes of this node ({reason}), which NCCL needs for direct "
            "copies. Either the processes run in a container or in a virtual machine without NVLink, where IPC "
            "between processes is blocked, or each process sees only its own GPU."
        ),
        remedy=(
            'launch with -e \'{{"launch_environment": {{"NCCL_P2P_DISABLE": "1"}}}}\' to copy through the host\'s '
            'memory; if that fails as well, also set "NCCL_CUMEM_ENABLE": "0" and "NCCL_SHM_DISABLE": "1" (sockets). '
            "In a container, use --ipc=host, and let each process see all GPUs (no CUDA_VISIBLE_DEVICES per process)"
        ),
    ),
    EvidenceRule(
        id="one-gpu-per-task",
        entries=("invalid-device-ordinal", "device-id-invalid"),
        shows=(
            r"(?:set_device\(|\.cuda\(|device\(|device_ids=\[)[^\n]{0,60}(?i:local_?rank|args\.gpu\b)",
            r"\bsrun: |\bSLURM_|slurmstepd",
        ),
        cause=(
            "Either Slurm shows each task only its own GPU (--gpus-per-task=1 or --gpu-bind), which is device 0 "
            "there, but the script uses the local rank as the GPU number; or more tasks were started on the node "
            "than it has GPUs."
        ),
        remedy=(
            "request the GPUs for the node with --gpus-per-node=N in place of --gpus-per-task, and use "
            "--gpu-bind=none; or let the script use local_rank % torch.cuda.device_count()"
        ),
    ),
    EvidenceRule(
        id="more-local-ranks-than-gpus",
        entries=("invalid-device-ordinal", "device-id-invalid"),
        shows=(r"(?:set_device\(|\.cuda\(|device\(|device_ids=\[)[^\n]{0,60}(?i:local_?rank|LOCAL_RANK|args\.gpu\b)",),
        unless=r"%\s{0,2}(?:torch\.cuda\.device_count|n_?gpu|num_gpus)|Visible devices|CUDA_VISIBLE_DEVICES: \[",
        cause=(
            "More processes were started on this node than there are visible GPUs: the script uses the local "
            "rank as the GPU number, and this process's local rank exceeds the number of visible GPUs "
            "(CUDA_VISIBLE_DEVICES, the scheduler or the container may hide some)."
        ),
        remedy=FEWER_RANKS,
        condition=is_not_second_rank,
    ),
    EvidenceRule(
        id="gpu-by-modulo-of-framework",
        entries=("tensors-on-two-devices",),
        shows=(TWO_GPUS, r"/(?:mmcv|mmengine|mmdet|mmseg|mmaction)/"),
        cause=(
            "This rank's model is on one GPU and its input is on another: mmcv computes the GPU number as the rank "
            "modulo the number of GPUs, which is not the local rank if the nodes have different numbers of GPUs."
        ),
        remedy=(
            "call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) after init_dist, and pass "
            "device_ids=[LOCAL_RANK] to MMDistributedDataParallel; upgrade mmcv or mmengine; or use the same "
            "number of ranks on each node: -e nproc_per_node={gpus_per_node}"
        ),
    ),
    EvidenceRule(
        id="gpu-by-modulo",
        entries=("tensors-on-two-devices", "nccl-duplicate-gpu"),
        shows=(),
        cause=(
            "The nodes have different numbers of ranks, so the rank modulo the number of GPUs is not the local rank: "
            "this rank puts some or all of its tensors on another rank's GPU."
        ),
        remedy=(
            f"{OWN_GPU}, not rank % torch.cuda.device_count(); or use the same number of ranks on each node with "
            "-e nproc_per_node=N"
        ),
        condition=has_different_rank_counts,
    ),
    EvidenceRule(
        id="model-spread-over-gpus",
        entries=("tensors-on-two-devices",),
        shows=(TWO_GPUS, r"device_map|/accelerate/hooks\.py|dispatch_model|hf_device_map"),
        cause=(
            'The model is spread over all GPUs of the node (device_map="auto") although each GPU has its own '
            "process: its layers are on cuda:{first} and cuda:{second}."
        ),
        remedy=(
            'use device_map={{"": int(os.environ["LOCAL_RANK"])}} in from_pretrained, or no device_map at all; for '
            "models that are too large for one GPU, use ZeRO 3 or FSDP"
        ),
    ),
    EvidenceRule(
        id="tensor-on-first-gpu",
        entries=("tensors-on-two-devices",),
        shows=(
            r"found at least two devices, (?=cuda:[1-9][^\n]{0,10}cuda:0|cuda:0[^\n]{0,10}cuda:[1-9])"
            r"(?P<both>[^\n!]{1,40})",
        ),
        cause="A tensor is on GPU 0 instead of this rank's own ({both}): it was created or moved with .cuda() or "
        '"cuda:0" before torch.cuda.set_device, or comes from a checkpoint that torch.load put on GPU 0.',
        remedy=f"{OWN_GPU}; torch.load(..., map_location='cpu')",
    ),
    EvidenceRule(
        id="tensor-on-cpu",
        entries=("tensors-on-two-devices",),
        shows=(
            r"found at least two devices, (?=cpu|cuda:\d{1,3} and cpu)(?P<both>[^\n!]{1,40})!?(?: \(when checking "
            r"argument for argument (?P<argument>\w{1,40}))?",
        ),
        cause="A tensor is still on the CPU while the others are on the GPU ({both}): an input, a label, or a tensor "
        "that the model holds without registering it as a buffer.",
        remedy=(
            "move the batch to the GPU: batch = {{name: value.to(device) for name, value in batch.items()}}. "
            "Register a module's tensors with self.register_buffer(...), and create new tensors with device=x.device"
        ),
    ),
    EvidenceRule(
        id="fields-not-permitted",
        entries=("setting-refused", "package-refused", "package-failed", "raised-by-script"),
        shows=(
            r"(?P<count>\d{1,3}) validation errors? for (?P<model>\w{1,80})\n[^\n\w]{0,2}(?:\[?\w{1,12}\]?: ?)?"
            r"(?P<field>[\w.]{1,80})\n[^\n]{0,30}Extra inputs are not permitted",
        ),
        cause=(
            "The configuration has fields that this version does not recognize in that section: {field} is the "
            "first of {count} errors for {model}; each field appears above an `Extra inputs are not permitted` "
            "in the log. They belong to another section (such as fp16 for bf16) or to a different version of the "
            "package that defines {model}; pydantic only checks them."
        ),
        remedy=(
            'remove these fields from that section of the configuration (DeepSpeed\'s bf16 may need only "enabled": '
            "true), or install the version of that package for which the configuration was written"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="deepspeed-counts-one-rank",
        entries=("deepspeed-batch-sizes",),
        shows=(
            r"world_size (?P<total>\d{1,7}) != (?P<micro>\d{1,7}) \* (?P<steps>\d{1,7}) \* 1\b",
            r"in from_pretrained$|zero\.Init\(|partition_parameters\.py",
        ),
        cause="DeepSpeed counts 1 rank, but the batch sizes imply more ({total} = {micro} * {steps} * ranks): the "
        "model is loaded (zero.Init in from_pretrained) before DeepSpeed's own communication is initialized. Calling "
        "only torch.distributed.init_process_group, as a Ray Trainer does, is not enough.",
        remedy=(
            "call deepspeed.init_distributed(), or create TrainingArguments, before from_pretrained, and upgrade "
            "accelerate; do not change the batch sizes, which are correct"
        ),
        condition=has_different_world_size,
        certain=True,
    ),
    EvidenceRule(
        id="deepspeed-batch-not-divisible",
        entries=("deepspeed-batch-sizes",),
        shows=(
            r"world_size (?P<total>\d{1,7}) != (?P<micro>\d{1,7}) \* (?P<steps>\d{1,7}) \* "
            r"(?P<ranks>\d{1,7})\b",
        ),
        cause=(
            "The global batch size, {total}, is not divisible by {micro} (per GPU) x {ranks} ranks: {micro} x "
            "{steps} x {ranks} is a different number."
        ),
        remedy=(
            "choose a train_batch_size (or whatever the script calls its global batch) that is a multiple of {micro} "
            "x {ranks}, or start a different number of ranks"
        ),
        condition=is_not_divisible,
        certain=True,
    ),
    EvidenceRule(
        id="deepspeed-started-alone",
        entries=("deepspeed-batch-sizes",),
        shows=(r"world_size (?P<total>\d{1,7}) != (?P<micro>\d{1,7}) \* (?P<steps>\d{1,7}) \* 1\b",),
        cause=(
            "DeepSpeed counts 1 rank, but the batch sizes imply more ({total} = {micro} * {steps} * ranks): the "
            "script was started without a multi-process launcher, or DeepSpeed reads the configuration before "
            "torch.distributed is initialized."
        ),
        remedy='leave train_batch_size out of the configuration (with the Hugging Face Trainer: "auto"), so that it '
        "follows from the number of ranks, and call deepspeed.init_distributed() before the configuration is read",
        condition=has_different_world_size,
    ),
    EvidenceRule(
        id="gradients-were-skipped",
        entries=("no-gradients-to-check",),
        shows=(
            r"(?P<line>(?i:\bskip(?:s|ped|ping)?\b|loss is (?:0|nan|none)|\bNaN in\b|no valid|empty "
            r"batch)[^\n]{0,120})",
        ),
        cause=(
            'A batch produced no gradients ("{line}" in the log), but the script still called the optimizer\'s '
            "step, for which the gradient scaler needs at least one gradient."
        ),
        remedy=(
            "skip scaler.step(optimizer) for such a batch, and do so on all ranks: `if loss.requires_grad: "
            "scaler.scale(loss).backward(); scaler.step(optimizer)`. Remove the sample (NaN, empty) from the data"
        ),
    ),
    EvidenceRule(
        id="keys-of-wrapped-model",
        entries=("checkpoint-entry-missing", "distributed-checkpoint-keys"),
        shows=(
            r"(?:KeyError: ['\"]?|Missing key in checkpoint state_dict: "
            r")(?P<name>[\w.]{0,120}(?:_fsdp_wrapped_module|_orig_mod|"
            r"_checkpoint_wrapped_module|(?<![\w])module)\.[\w.]{0,160})",
        ),
        cause=(
            "The names in the model and in the checkpoint differ: the model to load into is wrapped (FSDP, DDP, "
            "torch.compile), which adds a prefix to its names ({name}), and the checkpoint was saved from the "
            "model without the wrapper, or from another wrapper."
        ),
        remedy=(
            "save and load with the same object in the same state: get_state_dict(model, optimizer) and "
            "set_state_dict from torch.distributed.checkpoint.state_dict remove such prefixes; under FSDP, use the "
            "same state_dict_type for both. Or load before the model is wrapped"
        ),
    ),
)

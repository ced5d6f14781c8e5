# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence on wrong settings of sharded, split and compiled models."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule

TOPIC = "Settings of sharded, split and compiled models"
COMPILE = ("compile-failed", "compiler-gave-up", "package-failed", "operation-failed")
INSTANTIATE = (
    r"/(?:torchtune/config/_instantiate|hydra/_internal/instantiate/\w{1,40}|mmengine/registry/build_functions|"
    r"mmcv/utils/registry|detectron2/config/instantiate|jsonargparse/_?\w{1,40}|nemo/core/classes/common)\.py\""
)
FSDP_TWICE = ("fsdp-twice",)
WITHOUT_DDP_OPTIMIZER = (
    "set torch._dynamo.config.optimize_ddp = False at the start of the script, or use torch.compile(model, "
    "dynamic=False) with drop_last=True; newer versions of torch have fixed several of these errors"
)

RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="zero3-modules-differ",
        entries=("collectives-differ",),
        shows=(
            r"Detected mismatch between collectives on ranks",
            r"/deepspeed/runtime/zero/(?:partition|stage3|parameter_offload)",
        ),
        cause=(
            "ZeRO 3 gathers the weights of each layer when that layer runs, and the ranks run different layers: "
            "this batch uses images, experts or adapters on only some ranks, or generate() ended sooner on one "
            "rank."
        ),
        remedy=(
            "feed a dummy image (times 0) where a sample has none, or use batches of one kind on all ranks at the "
            "same time; use generate(synced_gpus=True); for mixtures of experts, call "
            "deepspeed.utils.set_z3_leaf_modules(model, [BLOCK]); or use ZeRO 2"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="fsdp-modules-differ",
        entries=("collectives-differ",),
        shows=(
            r"Detected mismatch between collectives on ranks",
            r"/torch/distributed/(?:fsdp/_(?:runtime_utils|flat_param)|_composable/fsdp/|fsdp/_fully_shard/)",
        ),
        cause=(
            "FSDP gathers the weights of each layer when that layer runs, and the ranks run different layers or "
            "numbers of passes: this batch uses images, experts or a branch on only some ranks, or one rank has more "
            "batches."
        ),
        remedy=(
            "run every wrapped layer on all ranks in each step (where a sample has no input for a layer, pass a dummy "
            "input and multiply the output by 0), and give all ranks the same number of batches (drop_last=True); or "
            "do not wrap the layers of that branch"
        ),
    ),
    EvidenceRule(
        id="trainer-without-engine",
        entries=("zero3-outside-engine",),
        shows=(r"/transformers/trainer\.py\", line \d{1,6}, in compute_loss\n\s{1,20}outputs = model\(\*\*inputs",),
        unless=r"/deepspeed/runtime/engine\.py\"",
        cause=(
            "The Trainer itself calls the model without a DeepSpeed engine, although the weights were loaded for "
            "ZeRO 3: the script was started as a single plain process, without a distributed launcher, or the "
            "Trainer did not receive the DeepSpeed configuration."
        ),
        remedy=(
            "start the script through a launcher, even for one GPU (use torchrun, which is muster's default; for "
            "LLaMA-Factory, set FORCE_TORCHRUN=1); or leave the DeepSpeed configuration out"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="clipping-of-mixed-gradients",
        entries=("tensors-mixed-with-dtensors",),
        shows=(
            r"got mixed torch\.Tensor and DTensor",
            r"in (?:_?get_total_norm|clip_grad_norm_?\w{0,20}|_clip_grads_with_norm_?|clip_grads_with_norm_)\b",
        ),
        cause=(
            "Clipping computes one norm over all gradients, but some are DTensors while others are plain tensors: "
            "tensor parallelism or FSDP2 shards only a part of the model."
        ),
        remedy=(
            "turn clipping off to continue (max_grad_norm=0 or -1; gradient_clip_val=None in Lightning); or shard "
            "all parameters over the same mesh (including norms, embeddings and the head), or clip each kind "
            "separately"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="optimizer-of-mixed-parameters",
        entries=("tensors-mixed-with-dtensors",),
        shows=(
            r"aten\._?(?:foreach|fused)_\w{1,40}\.\w{1,20}: got mixed torch\.Tensor and DTensor",
            r"/optim/|optimizer\.step\(|in step\b|in _multi_tensor_\w{1,20}",
        ),
        cause=(
            "The optimizer updates all parameters in one operation (foreach, fused), but some of its parameters or "
            "their states are DTensors and others are plain tensors: only a part of the model is sharded, or the "
            "state was created or loaded before the model was sharded."
        ),
        remedy=(
            "use torch.optim.AdamW(..., foreach=False, fused=False), or one parameter group for each kind; if the "
            "optimizer is not torch's, upgrade its package; create the optimizer after fully_shard or "
            "parallelize_module, and load its state with "
            "torch.distributed.checkpoint.state_dict.set_optimizer_state_dict"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="compile-ddp-dynamic",
        entries=COMPILE,
        shows=(
            r"/torch/_dynamo/backends/distributed\.py\"|\bDDPOptimizer\b|optimize_ddp",
            r"(?P<what>symbolic sizes|SymInt|symbolic shape|dynamic shape|While executing %submod|"
            r"higher order op|DDPOptimizer backend: Found)",
        ),
        cause=(
            "torch.compile splits a model under DDP into several graphs (its DDPOptimizer), which fails for this "
            "model ({what}), for example because inputs vary in size, such as in a smaller last batch."
        ),
        remedy=WITHOUT_DDP_OPTIMIZER,
        certain=True,
    ),
    EvidenceRule(
        id="compile-traces-ddp",
        entries=COMPILE,
        shows=(r"set_runtime_stats_and_log|of class .(?:Logger|Reducer|DistributedDataParallel)\b", r"_dynamo"),
        cause="torch.compile was applied to the wrapper of DistributedDataParallel and tries to trace DDP itself.",
        remedy="compile the model first and wrap it afterwards: DDP(torch.compile(model)); with accelerate or the "
        "Trainer, upgrade accelerate, or leave dynamo_backend and torch_compile out and call model.compile() before "
        "prepare",
    ),
    EvidenceRule(
        id="compile-under-ddp",
        entries=COMPILE,
        shows=(r"/torch/_dynamo/backends/distributed\.py\"",),
        cause=(
            "torch.compile failed while it was compiling the parts of a model under DDP, which it splits at the "
            "boundaries of DDP's buckets."
        ),
        remedy=(
            f'{WITHOUT_DDP_OPTIMIZER}. To train without compiling, use -e \'{{{{"launch_environment": '
            '{{"TORCH_COMPILE_DISABLE": "1"}}}}\''
        ),
    ),
    EvidenceRule(
        id="component-without-key",
        entries=("signature-differs", "package-refused", "packages-differ"),
        shows=(
            INSTANTIATE,
            r"(?P<what>[A-Za-z_][\w.]{0,100}?)(?:\.__init__)?\(\) got an unexpected keyword argument "
            r"['\"](?P<name>\w{1,80})['\"]",
        ),
        cause=(
            "The configuration builds {what} and sets {name}, which that component does not support: the key "
            "belongs to another component, or to a different version of the library or project."
        ),
        remedy=(
            "compare that part of the configuration with the examples for the installed version: use the component "
            "that the examples name there, or remove {name}"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="accelerate-optimizer-names",
        entries=("distributed-checkpoint-keys", "rank-error-lost"),
        shows=(r"in load_fsdp_optimizer\b",),
        cause=(
            "This version of accelerate saves the FSDP2 optimizer under different names from those that it looks for "
            "when loading, so its sharded optimizer checkpoints cannot be loaded."
        ),
        remedy=(
            "upgrade accelerate; or save with fsdp_state_dict_type: FULL_STATE_DICT. To use this checkpoint, resume "
            "with the weights only"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="wrapped-after-full-memory",
        entries=FSDP_TWICE,
        shows=(r"/accelerate/utils/memory\.py\", line \d{1,6}, in decorator",),
        cause=(
            "auto_find_batch_size restarted the training with a smaller batch after a GPU ran out of memory, and "
            "FSDP rejects the model that it had already wrapped."
        ),
        remedy=(
            "set auto_find_batch_size=False, and use half the per_device_train_batch_size with twice the "
            "gradient_accumulation_steps"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="wrapped-and-compiled",
        entries=FSDP_TWICE,
        shows=(r"Expected _orig_mod\b",),
        cause=(
            "The model was compiled after FSDP had wrapped it, and then wrapped again: this version of accelerate or "
            "transformers does not support combining torch_compile with FSDP."
        ),
        remedy="upgrade accelerate and transformers together; or leave torch_compile (dynamo_backend) out",
        certain=True,
    ),
    EvidenceRule(
        id="batches-dispatched",
        entries=("shapes-differ",),
        shows=(r"/accelerate/data_loader\.py\", line \d{1,6}, in _fetch_batches",),
        cause=(
            "accelerate reads a streamed dataset (IterableDataset) on rank 0 and joins the batches of all ranks into "
            "one, but the samples in these batches have different lengths."
        ),
        remedy=(
            "set dispatch_batches=False, so that each rank reads its own batches "
            "(accelerator_config={{'dispatch_batches': False}} in TrainingArguments, "
            "DataLoaderConfiguration(dispatch_batches=False) for Accelerator); set split_batches=True; or pad all "
            "samples to one length"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="checkpoint-of-other-width",
        entries=("checkpoint-vocabulary", "checkpoint-shapes"),
        shows=(
            r"embed\w{0,40}|lm_head|\bwte\b",
            r"torch\.Size\(\[(?P<rows>\d{2,9}), (?P<saved>\d{1,6})\]\) from checkpoint, the shape in current model is "
            r"torch\.Size\(\[(?P=rows), (?P<current>\d{1,6})\]\)",
        ),
        cause=(
            "The checkpoint is from a model of a different size: its embedding has a width of {saved}, and this "
            "model's has {current}, with equal vocabulary sizes."
        ),
        remedy=(
            "choose the architecture or configuration of the checkpoint (--arch, model name, hidden size), or a "
            "checkpoint of this size"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="unused-in-static-graph",
        entries=("ddp-unused-parameters",),
        shows=(r"not compatible with static_graph set to True",),
        cause=(
            "DistributedDataParallel was told that each step uses the same parameters (static_graph=True, "
            "_set_static_graph()), but this step leaves some out."
        ),
        remedy="DistributedDataParallel(..., static_graph=False, find_unused_parameters=True)",
        certain=True,
    ),
    EvidenceRule(
        id="option-of-the-launcher",
        entries=("trainer-arguments-unknown",),
        shows=(
            r"not used by the HfArgumentParser: \[[^\n]{0,300}'"
            r"(?P<name>--(?:config_file|num_processes|num_machines|machine_rank|main_process_(?:ip|port)|use_deepspeed|"
            r"use_fsdp|dynamo_backend|nproc[-_]per[-_]node|nnodes|node[-_]rank|master[-_](?:addr|port)|rdzv[-_]\w{1,20}|"
            r"hostfile|num_gpus|num_nodes|include))\b",
        ),
        cause=(
            "{name} is a launcher option (accelerate, torchrun, deepspeed), but it is placed after the script's "
            "name, so the script receives it."
        ),
        remedy=(
            "put it before the name of the script (quote a path that contains spaces); muster sets such options "
            "itself, so leave it out of launch_args"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="relative-path-under-hydra",
        entries=("file-not-on-node", "file-missing", "path-asserted"),
        shows=(
            r"\bhydra_main\b|/hydra/_internal/",
            r"No such file or directory: '(?P<path>(?![/~]|\w{2,8}://)[^'\n]{1,300})'",
        ),
        cause=(
            "{path} is a relative path, and Hydra starts the job in its own output directory (outputs/DATE/TIME), "
            "where the path does not exist."
        ),
        remedy=(
            "pass an absolute path (KEY=$PWD/{path}), set hydra.job.chdir=False, or call "
            "hydra.utils.to_absolute_path(path) in the code. If the path is already absolute, copy the file to this "
            "node"
        ),
    ),
    EvidenceRule(
        id="checkpoint-named-by-metric",
        entries=("checkpoint-on-one-node", "checkpoint-file-missing", "file-missing", "file-not-on-node"),
        shows=(
            r"No such file or directory: '[^'\n]{0,300}(?P<metric>(?<![A-Za-z_])[A-Za-z_]{0,20}(?:loss|acc|"
            r"auc|f1|map|metric|score|rmse|mae)\w{0,20}=-?\d{1,6}\.\d{1,8})[^'\n]{0,60}\.ckpt'",
        ),
        cause=(
            "The file name contains the value of a metric ({metric}), which each rank computes from its own part of "
            "the data, so this rank looks for a name that rank 0 never wrote. If the value is rank 0's, the file is "
            "only on the first node, since the nodes share no drive."
        ),
        remedy=(
            "call self.log(NAME, value, sync_dist=True) for the metric in the file name, or leave the metric out of "
            "the name; on several nodes, save to a drive that all of them mount (ansible-playbook site.yml --tags "
            "data)"
        ),
    ),
    EvidenceRule(
        id="attribute-of-one-rank",
        entries=("attribute-missing", "error-in-script"),
        shows=(
            r"\bself\.(?P<name>\w{1,60})\b(?!\()[^\n]{0,200}\n(?:[^\n]{0,300}\n){0,2}?[^\n]{0,40}AttributeError: "
            r"'(?P<kind>\w{1,60})' object has no attribute '(?P=name)'",
        ),
        cause=(
            "This {kind} object has no {name} on this rank: the code sets it in a branch that this rank did not "
            "take (usually `if rank == 0` or is_main_process), or in a method that has not been called yet."
        ),
        remedy=(
            "set the attribute on all ranks, in __init__ outside of that branch, or read it only in the same branch; "
            "if the code is from a package, upgrade the package"
        ),
    ),
    EvidenceRule(
        id="random-states-of-one-rank",
        entries=("checkpoint-file-missing", "file-not-on-node", "file-missing"),
        shows=(r"No such file or directory: '[^'\n]{0,300}/(?P<name>(?:random_states|rng_state)_\d{1,6}\.\w{2,4})'",),
        cause=(
            "Each rank saves its own file in the checkpoint, and this rank's file ({name}) is missing: the script "
            "saved on the main process only (if is_main_process: save_state), with fewer ranks, or on a disk that "
            "the nodes do not share."
        ),
        remedy=(
            "call accelerator.save_state(path) on all ranks, outside of `if is_main_process`, and save to a drive "
            "that all nodes mount (otherwise set save_on_each_node); to use this checkpoint, copy "
            "random_states_0.pkl to {name}"
        ),
    ),
    EvidenceRule(
        id="checkpoint-without-its-end",
        entries=("checkpoint-file-missing", "file-not-on-node"),
        shows=(
            r"No such file or directory: '[^'\n]{0,300}/checkpoint-\d{1,9}/"
            r"(?P<name>trainer_state\.json|scheduler\.pt|optimizer\.pt|training_args\.bin)'",
        ),
        cause=(
            "The checkpoint lacks {name}, which the Trainer writes after the weights: the job ended while the "
            "checkpoint was being saved (or this version of transformers left the file out), or only the first node "
            "has the file, since the nodes share no drive."
        ),
        remedy=(
            "list the directory on the first node: if the file is missing there as well, resume from the previous "
            "checkpoint (resume_from_checkpoint=DIRECTORY) and upgrade transformers; otherwise save to a drive that "
            "all nodes mount (ansible-playbook site.yml --tags data)"
        ),
    ),
)

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
    "torch._dynamo.config.optimize_ddp = False at the start of the script; or torch.compile(model, dynamic=False) "
    "with drop_last=True; newer releases of torch have fixed several of these errors"
)

RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="zero3-modules-differ",
        entries=("collectives-differ",),
        shows=(
            r"Detected mismatch between collectives on ranks",
            r"/deepspeed/runtime/zero/(?:partition|stage3|parameter_offload)",
        ),
        cause="ZeRO 3 gathers the weights of each layer when it runs, and the ranks run different layers: this batch "
        "has images, experts or adapters on some ranks only, or generate() ended sooner on one.",
        remedy="feed a dummy image (times 0) where a sample has none, or batches of one kind on all ranks at once; "
        "generate(synced_gpus=True); deepspeed.utils.set_z3_leaf_modules(model, [BLOCK]) for mixtures of experts; or "
        "use ZeRO 2",
        certain=True,
    ),
    EvidenceRule(
        id="fsdp-modules-differ",
        entries=("collectives-differ",),
        shows=(
            r"Detected mismatch between collectives on ranks",
            r"/torch/distributed/(?:fsdp/_(?:runtime_utils|flat_param)|_composable/fsdp/|fsdp/_fully_shard/)",
        ),
        cause="FSDP gathers the weights of each layer when it runs, and the ranks run different layers or numbers of "
        "passes: this batch uses images, experts or a branch on some ranks only, or one rank has more batches.",
        remedy="run every wrapped layer on all ranks in each step (a dummy input times 0 where a sample has none), and "
        "give all ranks the same number of batches (drop_last=True); or do not wrap the layers of that branch",
    ),
    EvidenceRule(
        id="trainer-without-engine",
        entries=("zero3-outside-engine",),
        shows=(r"/transformers/trainer\.py\", line \d{1,6}, in compute_loss\n\s{1,20}outputs = model\(\*\*inputs",),
        unless=r"/deepspeed/runtime/engine\.py\"",
        cause="The Trainer itself calls the model without a DeepSpeed engine, although the weights were loaded for "
        "ZeRO 3: the script was started as one plain process, without a distributed launcher, or the Trainer did not "
        "get the DeepSpeed configuration.",
        remedy="start it through a launcher, even for one GPU (torchrun, muster's default; FORCE_TORCHRUN=1 for "
        "LLaMA-Factory); or leave the DeepSpeed configuration out",
        certain=True,
    ),
    EvidenceRule(
        id="clipping-of-mixed-gradients",
        entries=("tensors-mixed-with-dtensors",),
        shows=(
            r"got mixed torch\.Tensor and DTensor",
            r"in (?:_?get_total_norm|clip_grad_norm_?\w{0,20}|_clip_grads_with_norm_?|clip_grads_with_norm_)\b",
        ),
        cause="Clipping takes one norm over all gradients, and some are DTensors while others are plain tensors: "
        "tensor parallelism or FSDP2 splits only a part of the model.",
        remedy="turn clipping off to go on (max_grad_norm=0 or -1; gradient_clip_val=None in Lightning); or split all "
        "parameters over the same mesh (also norms, embeddings and the head), or clip each kind on its own",
        certain=True,
    ),
    EvidenceRule(
        id="optimizer-of-mixed-parameters",
        entries=("tensors-mixed-with-dtensors",),
        shows=(
            r"aten\._?(?:foreach|fused)_\w{1,40}\.\w{1,20}: got mixed torch\.Tensor and DTensor",
            r"/optim/|optimizer\.step\(|in step\b|in _multi_tensor_\w{1,20}",
        ),
        cause="The optimizer updates all parameters in one operation (foreach, fused), and its parameters or their "
        "states are partly DTensors and partly plain tensors: only a part of the model is split, or the state was "
        "created or loaded before the model was split.",
        remedy="torch.optim.AdamW(..., foreach=False, fused=False), or one parameter group for each kind; upgrade the "
        "package of an optimizer that is not torch's; create the optimizer after fully_shard or parallelize_module, "
        "and load its state with torch.distributed.checkpoint.state_dict.set_optimizer_state_dict",
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
        cause="torch.compile splits a model under DDP into several graphs (its DDPOptimizer), which fails for this one "
        "({what}), as for inputs of varying sizes such as a smaller last batch.",
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
        cause="torch.compile failed while it compiled the parts of a model under DDP, which it splits at the borders "
        "of DDP's buckets.",
        remedy=f"{WITHOUT_DDP_OPTIMIZER}. To train without compiling: "
        """-e '{{"launch_environment": {{"TORCH_COMPILE_DISABLE": "1"}}}}'""",
    ),
    EvidenceRule(
        id="component-without-key",
        entries=("signature-differs", "package-refused", "packages-differ"),
        shows=(
            INSTANTIATE,
            r"(?P<what>[A-Za-z_][\w.]{0,100}?)(?:\.__init__)?\(\) got an unexpected keyword argument "
            r"['\"](?P<name>\w{1,80})['\"]",
        ),
        cause="The configuration builds {what} and sets {name} for it, which it does not have: the key belongs to "
        "another component, or to another release of the library or project.",
        remedy="compare that part of the configuration with the examples of the installed release: name the component "
        "that they name there, or remove {name}",
        certain=True,
    ),
    EvidenceRule(
        id="accelerate-optimizer-names",
        entries=("distributed-checkpoint-keys", "rank-error-lost"),
        shows=(r"in load_fsdp_optimizer\b",),
        cause="This release of accelerate saves the optimizer of FSDP2 under other names than those under which it "
        "looks for them: its sharded checkpoints of the optimizer cannot be loaded.",
        remedy="upgrade accelerate; or save with fsdp_state_dict_type: FULL_STATE_DICT; to use this checkpoint, resume "
        "with the weights only",
        certain=True,
    ),
    EvidenceRule(
        id="wrapped-after-full-memory",
        entries=FSDP_TWICE,
        shows=(r"/accelerate/utils/memory\.py\", line \d{1,6}, in decorator",),
        cause="auto_find_batch_size started the training again with a smaller batch, after the memory of a GPU was "
        "full, and FSDP refuses the model that it had already wrapped.",
        remedy="auto_find_batch_size=False, and half the per_device_train_batch_size with twice the "
        "gradient_accumulation_steps",
        certain=True,
    ),
    EvidenceRule(
        id="wrapped-and-compiled",
        entries=FSDP_TWICE,
        shows=(r"Expected _orig_mod\b",),
        cause="The model was compiled after FSDP had wrapped it, and then wrapped again: this release of accelerate "
        "or transformers does not combine torch_compile with FSDP.",
        remedy="upgrade accelerate and transformers together; or leave torch_compile (dynamo_backend) out",
        certain=True,
    ),
    EvidenceRule(
        id="batches-dispatched",
        entries=("shapes-differ",),
        shows=(r"/accelerate/data_loader\.py\", line \d{1,6}, in _fetch_batches",),
        cause="accelerate reads a streamed data set (IterableDataset) on rank 0 and joins the batches of all ranks "
        "into one, and their samples have different lengths.",
        remedy="dispatch_batches=False, so that each rank reads its own batches "
        "(accelerator_config={{'dispatch_batches': False}} in TrainingArguments, "
        "DataLoaderConfiguration(dispatch_batches=False) for Accelerator); or split_batches=True; or pad all samples "
        "to one length",
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
        cause="The checkpoint is of a model of another size: its embedding has the width {saved}, and this model's "
        "{current}, with equal vocabularies.",
        remedy="choose the architecture or configuration of the checkpoint (--arch, the name of the model, hidden "
        "size), or a checkpoint of this size",
        certain=True,
    ),
    EvidenceRule(
        id="unused-in-static-graph",
        entries=("ddp-unused-parameters",),
        shows=(r"not compatible with static_graph set to True",),
        cause="DistributedDataParallel was told that each step uses the same parameters (static_graph=True, "
        "_set_static_graph()), and this step leaves some out.",
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
        cause="{name} is an option of the launcher (accelerate, torchrun, deepspeed), and it stands after the name of "
        "the script, so that the script gets it.",
        remedy="put it before the name of the script (a path with blanks in quotes); muster sets such options itself: "
        "leave it out of launch_args",
        certain=True,
    ),
    EvidenceRule(
        id="relative-path-under-hydra",
        entries=("file-not-on-node", "file-missing", "path-asserted"),
        shows=(
            r"\bhydra_main\b|/hydra/_internal/",
            r"No such file or directory: '(?P<path>(?![/~]|\w{2,8}://)[^'\n]{1,300})'",
        ),
        cause="{path} is a relative path, and Hydra starts the job in a directory of its own (outputs/DATE/TIME), "
        "where it does not exist.",
        remedy="give it from the root: KEY=$PWD/{path}; or hydra.job.chdir=False; in code: "
        "hydra.utils.to_absolute_path(path). If the path is from the root already, copy the file to this node",
    ),
    EvidenceRule(
        id="checkpoint-named-by-metric",
        entries=("checkpoint-on-one-node", "checkpoint-file-missing", "file-missing", "file-not-on-node"),
        shows=(
            r"No such file or directory: '[^'\n]{0,300}(?P<metric>(?<![A-Za-z_])[A-Za-z_]{0,20}(?:loss|acc|"
            r"auc|f1|map|metric|score|rmse|mae)\w{0,20}=-?\d{1,6}\.\d{1,8})[^'\n]{0,60}\.ckpt'",
        ),
        cause="The file's name has the value of a metric ({metric}), which each rank computes from its own part of the "
        "data: a rank looks for a name that rank 0 never wrote. If the value is that of rank 0, the file is only on "
        "the first node, since the nodes share no drive.",
        remedy="self.log(NAME, value, sync_dist=True) for the metric in the file name, or leave it out of the name; on "
        "several nodes save to a drive that all of them mount (ansible-playbook site.yml --tags data)",
    ),
    EvidenceRule(
        id="attribute-of-one-rank",
        entries=("attribute-missing", "error-in-script"),
        shows=(
            r"\bself\.(?P<name>\w{1,60})\b(?!\()[^\n]{0,200}\n(?:[^\n]{0,300}\n){0,2}?[^\n]{0,40}AttributeError: "
            r"'(?P<kind>\w{1,60})' object has no attribute '(?P=name)'",
        ),
        cause="This object of {kind} has no {name} on this rank: the code sets it in a branch that this rank did not "
        "take (mostly `if rank == 0`, is_main_process), or in a method that was not called before.",
        remedy="set it on all ranks, in __init__ outside of that branch, or read it only in the same branch; for a "
        "package, upgrade it",
    ),
    EvidenceRule(
        id="random-states-of-one-rank",
        entries=("checkpoint-file-missing", "file-not-on-node", "file-missing"),
        shows=(r"No such file or directory: '[^'\n]{0,300}/(?P<name>(?:random_states|rng_state)_\d{1,6}\.\w{2,4})'",),
        cause="Each rank saves a file of its own in the checkpoint, and that of this rank ({name}) is missing: the "
        "script saved on the main process only (if is_main_process: save_state), with fewer ranks, or on a disk that "
        "the nodes do not share.",
        remedy="call accelerator.save_state(path) on all ranks, outside of `if is_main_process`, on a drive that all "
        "nodes mount (save_on_each_node otherwise); to use this checkpoint, copy random_states_0.pkl to {name}",
    ),
    EvidenceRule(
        id="checkpoint-without-its-end",
        entries=("checkpoint-file-missing", "file-not-on-node"),
        shows=(
            r"No such file or directory: '[^'\n]{0,300}/checkpoint-\d{1,9}/"
            r"(?P<name>trainer_state\.json|scheduler\.pt|optimizer\.pt|training_args\.bin)'",
        ),
        cause="The checkpoint lacks {name}, which the Trainer writes last: the job ended while it was saved (or this "
        "release of transformers left it out); or only the first node has it, since the nodes share no drive.",
        remedy="list the directory on the first node: if the file is missing there as well, resume from the checkpoint "
        "before (resume_from_checkpoint=DIRECTORY) and upgrade transformers; otherwise save to a drive that all nodes "
        "mount (ansible-playbook site.yml --tags data)",
    ),
)

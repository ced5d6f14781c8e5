# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for settings of sharded and split models, which their libraries refuse."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.rule import FrameRule

TOPIC = "Sharded and split models"
RULES: tuple[FrameRule, ...] = (
    FrameRule(
        id="integers-in-fsdp",
        title="FSDP got quantised weights",
        message=r"Cannot flatten integer dtype tensors|Only Tensors of floating point and complex dtype can require "
        r"gradients",
        source=r"flatten|FlatParam|fully_shard|FSDP",
        cause="{where}: FSDP cannot split weights that are stored as integers: the model was loaded in 8 or 4 bit.",
        remedy="load_in_8bit: false (FSDP does not support 8 bit); for 4 bit, bnb_4bit_quant_storage of the type of "
        "the other weights (torch.bfloat16) and adapter: qlora; or use DDP or ZeRO 2 with a whole model on each GPU",
    ),
    FrameRule(
        id="model-not-divisible",
        title="The model cannot be split into that many parts",
        exceptions=("AssertionError", "ValueError", "RuntimeError"),
        message=r"(?i:\b(?:layers?|experts?|heads?|query.groups|hidden.size|(?:sequence|seq|context).?len\w{0,4}|"
        r"vocab\w{0,12}|ffn\w{0,20}|intermediate.size|kv.channels|num_\w{1,30})\b[^\n]{0,80}"
        r"(?:(?:should|must|has to|needs? to|to) be (?:evenly |exactly )?(?:divisible|divided|a multiple)|"
        r"(?:is|are) not (?:evenly )?(?:divisible|a multiple)|cannot be (?:evenly )?divided))",
        cause="{where}: a size of the model does not divide by the number of parts: {message}",
        remedy="change the option that the message names: a pipeline size that divides the layers (or uneven stages in "
        "Megatron: --decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers), a tensor size that "
        "divides the attention and key-value heads, an expert size that divides the experts, a context size of which "
        "twice divides the sequence length",
    ),
    FrameRule(
        id="option-not-set",
        title="A library looks up an option that is not set",
        exceptions=("KeyError",),
        message=r"KeyError: None\s{0,4}\Z",
        raised_by="package",
        cause="{package} looks up an option that is not set (None) at {inner}, called from {where}: the option was "
        "left out, or this release reads it too early.",
        remedy="set the option that this line names in the configuration (for FSDP: fsdp_state_dict_type: "
        "FULL_STATE_DICT or SHARDED_STATE_DICT), and upgrade transformers, accelerate and {package} together",
    ),
    FrameRule(
        id="fsdp-twice",
        title="FSDP wraps a model twice",
        message=r"to NOT be FullyShardedDataParallel|to not already have FSDP applied|FSDP does not support nested",
        cause="{where}: FSDP is to wrap a model of which it has already wrapped a part ({message}): it is wrapped by "
        "the script and by the framework, or accelerator.prepare or train() ran twice with the same model.",
        remedy="wrap it in one place only (leave FSDP(...) out of a script that calls accelerator.prepare or the "
        "Trainer), and call prepare or train() once for each model",
    ),
    FrameRule(
        id="wrap-policy-missing",
        title="There is no policy for FSDP's layers",
        exceptions=("TypeError",),
        message=r"'NoneType' object is not callable",
        source=r"wrap_policy\w{0,20}\(|policy_fn\(",
        cause="{where} asks the wrap policy for the layers to wrap or to checkpoint, and none is set: "
        "fsdp_auto_wrap_policy is NO_WRAP or was left out.",
        remedy="fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP (or SIZE_BASED_WRAP with fsdp_min_num_params); or "
        "fsdp_activation_checkpointing: false, which needs the policy",
    ),
    FrameRule(
        id="rank-error-lost",
        title="The error of a rank could not be sent to the others",
        exceptions=("TypeError",),
        message=r"cannot pickle '?(?:code|frame|traceback)'? objects?",
        source=r"_object_to_tensor|gather_object|\.dump\(obj\)",
        cause="{where}: a rank failed while a distributed checkpoint was saved or loaded, and torch could not send its "
        "error to the other ranks, so that it is lost: mostly a key, a size or a file does not match.",
        remedy="see the error itself: the same call with no_dist=True in one process; upgrade torch and accelerate; "
        "or save full checkpoints (FULL_STATE_DICT)",
        over=("worker-not-picklable",),
    ),
    FrameRule(
        id="zero3-order-changed",
        title="ZeRO 3 meets layers in another order than it recorded",
        packages=("deepspeed",),
        message=r"pop from an empty deque|tracing error at step|reached end of (?:the )?trace|Tracing error",
        cause="{where}: ZeRO 3 recorded the order of the layers in the first step and meets another one now: the model "
        "also ran without its engine or hooks (generate() on the unwrapped model), or layers depend on the batch.",
        remedy="upgrade trl, accelerate and deepspeed together; call the model only through the engine; for generation "
        "in trl ds3_gather_for_generation=True; leave torch_compile out; or use ZeRO 2",
    ),
    FrameRule(
        id="optimizer-state-of-another",
        title="The optimizer lacks an entry in its state",
        exceptions=("KeyError",),
        packages=("torch", "apex", "bitsandbytes", "transformers", "deepspeed", "fairseq", "timm"),
        message=r"KeyError: '(?P<name>momentum|dampening|nesterov|betas|eps|exp_avg\w{0,4}|step|momentum_buffer|"
        r"amsgrad|maximize|foreach|square_avg|acc_delta|state1|lr|weight_decay)'",
        source=r"\b(?:param_)?(?:group|state|state_values)s?(?:\[\w{1,20}\])?\[['\"]",
        cause="{where}: the state of the optimizer has no '{name}': a checkpoint of another optimizer, of another "
        "release of it, or of other parameters was loaded (optimizer.load_state_dict replaces the groups as well).",
        remedy="resume with the optimizer that saved the checkpoint; or load only the model's weights and start with "
        "a new optimizer",
    ),
    FrameRule(
        id="micro-batches-too-few",
        title="A pipeline gets another number of micro-batches than it needs",
        message=r"Expecting \d{1,6} (?:arg_mbs|kwarg_mbs|target_mbs) but got \d|"
        r"(?i:(?:number of )?micro.?batch(?:es)?[^\n]{0,80}(?:not divisible by|must be (?:at least|divisible|greater|"
        r"a multiple)|should be (?:at least|divisible|greater|a multiple)|less than|smaller than)[^\n]{0,60}"
        r"(?:pipeline|stage|pp))",
        cause="{where}: the pipeline cannot split the batch into the micro-batches that it needs: {message}",
        remedy="make the batch of each data-parallel rank at least as large as, and a multiple of, the number of "
        "micro-batches, and that at least the pipeline size (--global-batch-size and --micro-batch-size in Megatron; "
        "batch size and pipeline_parallel_microbatches in torchtitan); the same for evaluation and the last batch "
        "(drop_last)",
    ),
    FrameRule(
        id="weights-empty",
        title="Saved weights are empty",
        message=r"(?i:lora|adapter|checkpoint|vocab)[^\n]{0,120}(?:[Ww]eights?|[Ee]mbeddings?)(?: (?:is|of size|has "
        r"size|with shape))? (?:0|\(0,?\)|torch\.Size\(\[0\]\))(?:[!.,\s]|\Z)",
        cause="{where}: the weights that were saved are empty (size 0): they were saved from a model that ZeRO 3 or "
        "FSDP had sharded, without gathering them.",
        remedy="assemble them from DeepSpeed's files: python zero_to_fp32.py CHECKPOINT_DIRECTORY OUTPUT; for the next "
        'save "stage3_gather_16bit_weights_on_model_save": true (zero3_save_16bit_model in accelerate) and '
        "trainer.save_model(), or ZeRO 2",
    ),
    FrameRule(
        id="checkpoint-of-another-strategy",
        title="A checkpoint was saved with another strategy",
        message=r"not a valid DeepSpeed checkpoint|not a valid (?:FSDP|sharded|distributed) checkpoint|path points to "
        r"a file, but `?FSDP\w{0,12}`?|Could not find a valid checkpoint for the FSDP",
        cause="{where} resumes with DeepSpeed or FSDP from something else than what this strategy saves, which is a "
        "directory with a part for each rank: {message}",
        remedy="pass the directory that this strategy saved (of the same run, not a file within it), or resume with "
        "the strategy that saved the file; to use only its weights: model.load_state_dict(torch.load(path, "
        'map_location="cpu")["state_dict"]) before fit, without ckpt_path',
    ),
    FrameRule(
        id="checkpoint-is-directory",
        title="A sharded checkpoint is loaded as one file",
        exceptions=("IsADirectoryError",),
        message=r"\.ckpt'|checkpoint|global_step",
        cause="{where} loads {path} as one file, but it is a directory: DeepSpeed and FSDP save one part for each "
        "rank.",
        remedy="to resume, pass it to the same strategy: trainer.fit(model, ckpt_path=PATH) or engine.load_checkpoint; "
        "for one file: python zero_to_fp32.py DIRECTORY OUTPUT (DeepSpeed; it is in the directory), or python -m "
        "lightning.pytorch.utilities.consolidate_checkpoint DIRECTORY (FSDP in Lightning)",
    ),
    FrameRule(
        id="weights-as-checkpoint",
        title="A file of weights is used as a checkpoint",
        exceptions=("KeyError",),
        message=r"KeyError: 'pytorch-lightning_version'",
        cause="{where}: the file is no checkpoint of Lightning: it has only weights (of the Hub, of state_dict(), or "
        "converted from shards), without the state of the trainer.",
        remedy="load the weights before fit: model.load_state_dict(torch.load(PATH, map_location='cpu')), and leave "
        "ckpt_path (resume_from_checkpoint) out",
    ),
    FrameRule(
        id="distributed-checkpoint-shapes",
        title="A distributed checkpoint is of a model of another size",
        message=r"Global shape mismatch for loaded \(\(?(?P<saved>[\d, ]{1,60})\)\)? and expected "
        r"\(\(?(?P<current>[\d, ]{1,60})\)\)?[^\n]{0,40}for key (?P<name>[\w.]{1,200})",
        cause="{name} has the shape ({saved}) in the checkpoint and ({current}) in this model: the run resumes, "
        "perhaps by itself, from the checkpoint of an earlier run with other settings (vocabulary, length, sizes).",
        remedy="to start anew, use another directory for checkpoints or remove the old one (NeMo: "
        "exp_manager.resume_if_exists=False, or another exp_dir or name; Megatron: another --load and --save); to "
        "resume, use the settings of the run that saved it",
    ),
    FrameRule(
        id="batches-not-joined",
        title="accelerate cannot join the batches of a streamed data set",
        message=r"Can only concatenate tensors but got|You can't use batches of different size with",
        cause="{where}: accelerate reads a streamed data set (IterableDataset) on rank 0 and joins the batches of all "
        "ranks into one, which fails for these: {message}",
        remedy="dispatch_batches=False, so that each rank reads its own batches "
        "(accelerator_config={{'dispatch_batches': False}} in TrainingArguments, "
        "DataLoaderConfiguration(dispatch_batches=False) for Accelerator), or remove fields from the batch that are "
        "not tensors",
    ),
    FrameRule(
        id="graph-not-static",
        title="DDP expects the same parameters in each step",
        message=r"not compatible with static_graph set to True",
        cause="{where}: DistributedDataParallel was told that each step uses the same parameters (static_graph=True, "
        "_set_static_graph()), and this step uses others, or several forward passes come before one backward pass.",
        remedy="leave static_graph=True and _set_static_graph() out; if parameters are then reported as unused: "
        "find_unused_parameters=True",
    ),
    FrameRule(
        id="single-process-wrapper",
        title="The script was not started for several ranks",
        message=r"MMDataParallel only supports single GPU training|only supports? (?:single|one)[ -](?:GPU|process) "
        r"training, if you need to train with multiple",
        cause="{where}: the script runs as one process, although several GPUs are asked for: it was not told of the "
        "launcher.",
        remedy="start it with --launcher pytorch (tools/dist_train.sh does) through torchrun, muster's default; or "
        "give it one GPU (--gpu-ids 0)",
    ),
    FrameRule(
        id="precision-on-cpu",
        title="Training runs on the CPU",
        message=r"(?i:(?:precision|bf16|fp16|amp\w*|float16|mixed)[^\n]{0,60}(?:not supported|unsupported|only "
        r"supported)[^\n]{0,30}\bCPU\b|requires? a (?:GPU|CUDA device))",
        cause="{where}: the job trains on the CPU, because torch sees no GPU in this process ({message}).",
        remedy="on that node, in the job's environment or image: python -c 'import torch; "
        "print(torch.version.cuda, torch.cuda.is_available())': None: install torch with CUDA; False: the driver, the "
        "container's GPUs (--gpus all) or CUDA_VISIBLE_DEVICES; ansible-playbook ping.yml lists the GPUs",
    ),
    FrameRule(
        id="run-already-complete",
        title="The run resumes at its end",
        exceptions=("ValueError",),
        message=r"No training would occur|max_duration[^\n]{0,80}less than or equal to the elapsed|already (?:trained|"
        r"completed|reached)[^\n]{0,60}(?:steps|epochs|iterations)",
        cause="{where}: the run resumed, perhaps by itself, from the checkpoint of a run that was already complete: "
        "{message}",
        remedy="train longer (max_duration, max_steps), or start anew: another run name or save folder, or automatic "
        "resuming off (autoresume: false in Composer), or remove the old checkpoints",
    ),
    FrameRule(
        id="option-required",
        title="An option must be set",
        exceptions=("AssertionError",),
        source=r"\bassert (?:self\.)?(?:args|cfg|config|opt|hparams)\.(?P<option>\w{1,60})(?: is not None| > 0)?,? ?\\?"
        r"(?:\n|\Z)",
        cause="{where} requires the option {option}, which is off or not set: {message}",
        remedy="set {option} (on the command line --{option}, mostly with - in place of _), or change the option that "
        "makes it necessary; the releases of the code differ in what they require",
    ),
    FrameRule(
        id="option-excluded",
        title="An option must not be set",
        exceptions=("AssertionError",),
        source=r"\bassert (?:not (?:self\.)?(?:args|cfg|config|opt|hparams)\.(?P<option>\w{1,60})|(?:self\.)?(?:args|"
        r"cfg|config|opt|hparams)\.(?P<none>\w{1,60}) is None),? ?\\?(?:\n|\Z)",
        cause="{where} does not allow the option {option}{none} together with the others: {message}",
        remedy="leave {option}{none} out, or the option with which it conflicts",
    ),
    FrameRule(
        id="advice-of-message",
        title="A message says what to do",
        exceptions=(
            "ValueError",
            "RuntimeError",
            "NotImplementedError",
            "AssertionError",
            "MisconfigurationException",
            "ImportError",
        ),
        message=r"(?:^|[.!:;,]\s{0,4}|\n\s{0,8})(?P<advice>(?:(?:[Yy]ou|[Yy]ou'd) (?:can|should|must|need to|may want "
        r"to|have to) |(?:[Pp]lease|[Tt]ry|[Cc]onsider|[Uu]se|[Ss]et|[Ee]ither|[Mm]ake sure|[Ee]nsure|[Pp]ass|"
        r"[Ss]pecify|[Ii]nstead)\b)(?! (?:report|file|open|see|refer|check|contact|submit|TORCH_|suppress|create an|"
        r"include|note|look|enable debug|visit|to report))[^\n]{10,400})",
        fallback=True,
        cause="{where}: {message}",
        remedy="do as the message says: {advice}",
    ),
)

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for settings of sharded and split models, which their libraries refuse."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.advice import AS_STATED
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.rule import FrameRule

TOPIC = "Sharded and split models"
OPTION = r"(?:[`'\"][\w.=-]{2,60}[`'\"]|--?\w[\w-]{1,60}|\w{1,40}[_=][\w.=-]{1,40})"
RULES: tuple[FrameRule, ...] = (
    FrameRule(
        id="integers-in-fsdp",
        title="FSDP got quantized weights",
        message=r"Cannot flatten integer dtype tensors|Only Tensors of floating point and complex dtype can require "
        r"gradients",
        source=r"flatten|FlatParam|fully_shard|FSDP",
        cause=(
            "{where}: FSDP cannot shard weights that are stored as integers: the model was loaded in 8-bit or 4-bit "
            "precision."
        ),
        remedy=(
            "set load_in_8bit: false (FSDP does not support 8-bit); for 4-bit, set bnb_4bit_quant_storage to the "
            "type of the other weights (torch.bfloat16) and use adapter: qlora; or use DDP or ZeRO 2 with a whole "
            "model on each GPU"
        ),
    ),
    FrameRule(
        id="model-not-divisible",
        title="The model cannot be split into that many parts",
        exceptions=("AssertionError", "ValueError", "RuntimeError"),
        message=r"(?i:\b(?:layers?|experts?|heads?|query.groups|hidden.size|(?:sequence|seq|context).?len\w{0,4}|"
        r"vocab\w{0,12}|ffn\w{0,20}|intermediate.size|kv.channels|num_\w{1,30})\b[^\n]{0,80}"
        r"(?:(?:should|must|has to|needs? to|to) be (?:evenly |exactly )?(?:divisible|divided|a multiple)|"
        r"(?:is|are) not (?:evenly )?(?:divisible|a multiple)|cannot be (?:evenly )?divided))",
        cause="{where}: a size is not divisible by the number of parts: {message}",
        remedy=(
            "change the option that the message names, or the number of ranks (the data-parallel size is the number "
            "of ranks divided by the tensor, pipeline and context sizes): the pipeline size must divide the number "
            "of layers (or use uneven stages in Megatron: --decoder-first-pipeline-num-layers, "
            "--decoder-last-pipeline-num-layers), the tensor size must divide the number of attention and key-value "
            "heads, the expert size must divide the number of experts, and twice the context size must divide the "
            "sequence length"
        ),
    ),
    FrameRule(
        id="option-not-set",
        title="A library reads an option that is not set",
        exceptions=("KeyError",),
        message=r"KeyError: None\s{0,4}\Z",
        raised_by="package",
        cause=(
            "{package} reads an option that is not set (None) at {inner}, called from {where}: the option was left "
            "out, or this version reads it too early."
        ),
        remedy=(
            "set the option that this line names in the configuration (for FSDP, set fsdp_state_dict_type to "
            "FULL_STATE_DICT or SHARDED_STATE_DICT), and upgrade transformers, accelerate and {package} together"
        ),
    ),
    FrameRule(
        id="fsdp-twice",
        title="FSDP wraps a model twice",
        message=r"to NOT be FullyShardedDataParallel|to not already have FSDP applied|FSDP does not support nested",
        cause=(
            "{where}: FSDP is asked to wrap a model that it has already partly wrapped ({message}): both the script "
            "and the framework wrap the model, or accelerator.prepare or train() ran twice with the same model."
        ),
        remedy=(
            "wrap the model in one place only (do not call FSDP(...) in a script that uses accelerator.prepare or "
            "the Trainer), and call prepare or train() only once for each model"
        ),
    ),
    FrameRule(
        id="wrap-policy-missing",
        title="There is no wrap policy for FSDP's layers",
        exceptions=("TypeError",),
        message=r"'NoneType' object is not callable",
        source=r"wrap_policy\w{0,20}\(|policy_fn\(",
        cause=(
            "{where} asks the wrap policy which layers to wrap or to checkpoint, but no policy is set: "
            "fsdp_auto_wrap_policy is NO_WRAP or was left out."
        ),
        remedy=(
            "set fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP (or SIZE_BASED_WRAP with fsdp_min_num_params); or set "
            "fsdp_activation_checkpointing: false, since activation checkpointing needs the policy"
        ),
    ),
    FrameRule(
        id="rank-error-lost",
        title="A rank's error could not be sent to the others",
        exceptions=("TypeError",),
        message=r"cannot pickle '?(?:code|frame|traceback)'? objects?",
        source=r"_object_to_tensor|gather_object|\.dump\(obj\)",
        cause=(
            "{where}: a rank failed while a distributed checkpoint was being saved or loaded, and torch could not "
            "send its error to the other ranks, so the error is lost: usually a key, a size or a file does not match."
        ),
        remedy=(
            "make the same call with no_dist=True in one process to see the error itself; upgrade torch and "
            "accelerate; or save full checkpoints (FULL_STATE_DICT)"
        ),
        over=("worker-not-picklable",),
    ),
    FrameRule(
        id="zero3-order-changed",
        title="ZeRO 3 runs layers in a different order than it recorded",
        packages=("deepspeed",),
        message=r"pop from an empty deque|tracing error at step|reached end of (?:the )?trace|Tracing error",
        cause=(
            "{where}: ZeRO 3 recorded the order of the layers in the first step, and the order is now different: the "
            "model was also run without its engine or hooks (generate() on the unwrapped model), or the layers that "
            "run depend on the batch."
        ),
        remedy=(
            "upgrade trl, accelerate and deepspeed together; call the model only through the engine; set "
            "ds3_gather_for_generation=True for generation in trl; leave torch_compile out; or use ZeRO 2"
        ),
    ),
    FrameRule(
        id="optimizer-state-of-another",
        title="The optimizer's state lacks an entry",
        exceptions=("KeyError",),
        packages=("torch", "apex", "bitsandbytes", "transformers", "deepspeed", "fairseq", "timm"),
        message=r"KeyError: '(?P<name>momentum|dampening|nesterov|betas|eps|exp_avg\w{0,4}|step|momentum_buffer|"
        r"amsgrad|maximize|foreach|square_avg|acc_delta|state1|lr|weight_decay)'",
        source=r"\b(?:param_)?(?:group|state|state_values)s?(?:\[\w{1,20}\])?\[['\"]",
        cause=(
            "{where}: the optimizer's state has no '{name}': the checkpoint that was loaded belongs to a "
            "different optimizer, a different version of it, or different parameters (optimizer.load_state_dict "
            "replaces the parameter groups as well)."
        ),
        remedy="resume with the optimizer that saved the checkpoint; or load only the model's weights and start with "
        "a new optimizer",
    ),
    FrameRule(
        id="micro-batches-too-few",
        title="A pipeline gets a different number of micro-batches than it needs",
        message=r"Expecting \d{1,6} (?:arg_mbs|kwarg_mbs|target_mbs) but got \d|"
        r"(?i:(?:number of )?micro.?batch(?:es)?[^\n]{0,80}(?:not divisible by|must be (?:at least|divisible|greater|"
        r"a multiple)|should be (?:at least|divisible|greater|a multiple)|less than|smaller than)[^\n]{0,60}"
        r"(?:pipeline|stage|pp))",
        cause="{where}: the pipeline cannot split the batch into the micro-batches that it needs: {message}",
        remedy=(
            "make the batch of each data-parallel rank at least as large as the number of micro-batches and a "
            "multiple of it, and make that number at least the pipeline size (--global-batch-size and "
            "--micro-batch-size in Megatron; batch size and pipeline_parallel_microbatches in torchtitan); do the "
            "same for evaluation and the last batch (drop_last)"
        ),
    ),
    FrameRule(
        id="weights-empty",
        title="Saved weights are empty",
        message=r"(?i:lora|adapter|checkpoint|vocab)[^\n]{0,120}(?:[Ww]eights?|[Ee]mbeddings?)(?: (?:is|of size|has "
        r"size|with shape))? (?:0|\(0,?\)|torch\.Size\(\[0\]\))(?:[!.,\s]|\Z)",
        cause=(
            "{where}: the saved weights are empty (size 0): they were saved from a model that ZeRO 3 or FSDP had "
            "sharded, without gathering them."
        ),
        remedy=(
            "with DeepSpeed, assemble the weights with python zero_to_fp32.py CHECKPOINT_DIRECTORY OUTPUT (the "
            "program is in the checkpoint directory); for the next save, set "
            '"stage3_gather_16bit_weights_on_model_save": true (zero3_save_16bit_model in accelerate) and call '
            "trainer.save_model(), or use ZeRO 2. With FSDP, save a full state dict (FULL_STATE_DICT)"
        ),
    ),
    FrameRule(
        id="checkpoint-of-another-strategy",
        title="A checkpoint was saved with a different strategy",
        message=r"not a valid DeepSpeed checkpoint|not a valid (?:FSDP|sharded|distributed) checkpoint|path points to "
        r"a file, but `?FSDP\w{0,12}`?|Could not find a valid checkpoint for the FSDP",
        cause=(
            "{where} resumes with DeepSpeed or FSDP from something other than the directory, with one part for "
            "each rank, that this strategy saves: {message}"
        ),
        remedy=(
            "pass the directory that this strategy saved (from the same run, not a file within it), or resume with "
            "the strategy that saved the file; to use only its weights, call model.load_state_dict(torch.load(path, "
            'map_location="cpu")["state_dict"]) before fit, without ckpt_path'
        ),
    ),
    FrameRule(
        id="checkpoint-is-directory",
        title="A sharded checkpoint is loaded as a single file",
        exceptions=("IsADirectoryError",),
        message=r"\.ckpt'|checkpoint|global_step",
        source=r"(?i:load|resume)",
        cause=(
            "{where} loads {path} as a single file, but it is a directory: DeepSpeed and FSDP save one part for each "
            "rank."
        ),
        remedy=(
            "resume by passing the directory to the same strategy: trainer.fit(model, ckpt_path=PATH) or "
            "engine.load_checkpoint; to get a single file, run python zero_to_fp32.py DIRECTORY OUTPUT (DeepSpeed; "
            "the script is in the directory), or python -m lightning.pytorch.utilities.consolidate_checkpoint "
            "DIRECTORY (FSDP in Lightning)"
        ),
    ),
    FrameRule(
        id="weights-as-checkpoint",
        title="A weights file is used as a checkpoint",
        exceptions=("KeyError",),
        message=r"KeyError: 'pytorch-lightning_version'",
        cause=(
            "{where}: the file is not a Lightning checkpoint: it contains only weights (from the Hub, from "
            "state_dict(), or converted from shards), without the trainer's state."
        ),
        remedy=(
            "load the weights before fit with model.load_state_dict(torch.load(PATH, map_location='cpu')), and leave "
            "ckpt_path (resume_from_checkpoint) out"
        ),
    ),
    FrameRule(
        id="distributed-checkpoint-shapes",
        title="A distributed checkpoint is from a model of a different size",
        message=r"Global shape mismatch for loaded \(\(?(?P<saved>[\d, ]{1,60})\)\)? and expected "
        r"\(\(?(?P<current>[\d, ]{1,60})\)\)?[^\n]{0,40}for key (?P<name>[\w.]{1,200})",
        cause=(
            "{name} has the shape ({saved}) in the checkpoint and ({current}) in this model: the run resumes, "
            "perhaps automatically, from the checkpoint of an earlier run with different settings (vocabulary, "
            "length, sizes)."
        ),
        remedy=(
            "to start over, use a different checkpoint directory or remove the old one (NeMo: "
            "exp_manager.resume_if_exists=False, or a different exp_dir or name; Megatron: different --load and "
            "--save directories); to resume, use the settings of the run that saved the checkpoint"
        ),
    ),
    FrameRule(
        id="batches-not-joined",
        title="accelerate cannot concatenate the batches of a streamed dataset",
        message=r"Can only concatenate tensors but got|You can't use batches of different size with",
        cause=(
            "{where}: accelerate reads a streamed dataset (IterableDataset) on rank 0 and concatenates the batches "
            "of all ranks into one, which fails for these batches: {message}"
        ),
        remedy=(
            "set dispatch_batches=False, so that each rank reads its own batches "
            "(accelerator_config={{'dispatch_batches': False}} in TrainingArguments, "
            "DataLoaderConfiguration(dispatch_batches=False) for Accelerator), or remove fields that are not tensors "
            "from the batch"
        ),
    ),
    FrameRule(
        id="graph-not-static",
        title="DDP expects the same parameters in each step",
        message=r"not compatible with static_graph set to True",
        cause=(
            "{where}: DistributedDataParallel was told that each step uses the same parameters (static_graph=True, "
            "_set_static_graph()), but this step uses different ones, or several forward passes come before one "
            "backward pass."
        ),
        remedy=(
            "leave static_graph=True and _set_static_graph() out; if parameters are then reported as unused, set "
            "find_unused_parameters=True"
        ),
    ),
    FrameRule(
        id="single-process-wrapper",
        title="The script was not started for several ranks",
        message=r"MMDataParallel only supports single GPU training|only supports? (?:single|one)[ -](?:GPU|process) "
        r"training, if you need to train with multiple",
        cause=(
            "{where}: the script is running as one process, although several GPUs are requested: it was not told "
            "which launcher is in use."
        ),
        remedy=(
            "start the script with --launcher pytorch (tools/dist_train.sh does this) through torchrun, muster's "
            "default; or give it only one GPU (--gpu-ids 0)"
        ),
    ),
    FrameRule(
        id="precision-on-cpu",
        title="Training runs on the CPU",
        message=r"(?i:(?:precision|bf16|fp16|amp\w*|float16|mixed)[^\n]{0,60}(?:not supported|unsupported|only "
        r"supported)[^\n]{0,20}(?:on|for|by) (?:the )?CPUs?(?: training)?[.!]?\s{0,3}(?:\n|\Z)|"
        r"requires? a (?:GPU|CUDA device)[.!]?\s{0,3}(?:\n|\Z))",
        cause="{where}: the job trains on the CPU, because torch sees no GPU in this process ({message}).",
        remedy=(
            "on that node, run python -c 'import torch; print(torch.version.cuda, torch.cuda.is_available())' in the "
            "job's environment or image. If it prints None, install torch with CUDA; if it prints False, check the "
            "driver, the container's GPUs (--gpus all) or CUDA_VISIBLE_DEVICES. Run ansible-playbook ping.yml to "
            "list the GPUs"
        ),
    ),
    FrameRule(
        id="run-already-complete",
        title="The resumed run was already complete",
        exceptions=("ValueError",),
        message=r"No training would occur|max_duration[^\n]{0,80}less than or equal to the elapsed|already (?:trained|"
        r"completed|reached)[^\n]{0,60}(?:steps|epochs|iterations)",
        cause=(
            "{where}: the run resumed, perhaps automatically, from the checkpoint of a run that was already "
            "complete: {message}"
        ),
        remedy=(
            "train longer (max_duration, max_steps); or, to start over, use a different run name or save folder, "
            "turn automatic resuming off (autoresume: false in Composer), or remove the old checkpoints"
        ),
    ),
    FrameRule(
        id="option-required",
        title="An option must be set",
        exceptions=("AssertionError",),
        source=r"\bassert (?:self\.)?(?:args|cfg|config|opt|hparams)\.(?P<option>\w{1,60})(?: is not None| > 0)?,? ?\\?"
        r"(?:\n|\Z)",
        cause="{where} requires the option {option}, which is off or not set: {message}",
        remedy=(
            "set {option} (on the command line --{option}, usually with - in place of _), or change the option that "
            "makes it necessary; different versions of the code have different requirements"
        ),
    ),
    FrameRule(
        id="option-excluded",
        title="An option must not be set",
        exceptions=("AssertionError",),
        source=r"\bassert (?:not (?:self\.)?(?:args|cfg|config|opt|hparams)\.(?P<option>\w{1,60})|(?:self\.)?(?:args|"
        r"cfg|config|opt|hparams)\.(?P<none>\w{1,60}) is None),? ?\\?(?:\n|\Z)",
        cause="{where} does not allow the option {option}{none} together with the others: {message}",
        remedy="leave {option}{none} out, or leave out the option that it conflicts with",
    ),
    FrameRule(
        id="gradient-type-unexpected",
        title="DeepSpeed gets gradients of a type that it does not expect",
        exceptions=("KeyError",),
        packages=("deepspeed",),
        message=r"KeyError: (?P<type>torch\.(?:float32|float16|bfloat16))",
        cause=(
            "{where}: DeepSpeed has no buffer for gradients of {type}: the weights have a different precision than "
            "the configuration says (bf16, fp16, communication_data_type), or adapters and norms have a different "
            "one than the other layers."
        ),
        remedy=(
            'remove "communication_data_type"; set "bf16": {{"enabled": true}} (or fp16) for a model in that '
            "precision; cast the other layers with model.to(torch.bfloat16); then upgrade deepspeed, since newer "
            "versions accept several gradient types"
        ),
    ),
    FrameRule(
        id="accumulation-types",
        title="DeepSpeed rejects bf16 with ZeRO",
        message=r"Model data type and gradient accumulation data type must be equal|BF16 optimizer for ZeRO requires "
        r"fp32 gradient accumulation",
        cause=(
            "{where}: {message}. If the configuration does not set data_types, this is a bug in DeepSpeed 0.7.6 to "
            "0.8.0 with bf16."
        ),
        remedy=(
            'upgrade deepspeed (0.8.1 or later), and leave "data_types": {{"grad_accum_dtype": ...}} out of the '
            "configuration, or set it to the precision of the model"
        ),
    ),
    FrameRule(
        id="optimizer-lacks-method",
        title="DeepSpeed does not support a combination of options",
        exceptions=("AttributeError",),
        packages=("deepspeed",),
        message=r"'(?P<class>\w{0,40}Optimizer\w{0,40})' object has no attribute '(?P<name>\w{1,80})'",
        raised_by="package",
        cause=(
            "{where}: DeepSpeed calls {name} on {class}, the optimizer in this configuration, which does not "
            "have it: this version does not support this combination of ZeRO stage, precision and offload, or "
            "the checkpoint was saved with a different combination."
        ),
        remedy=(
            "upgrade deepspeed; or use ZeRO stage 1 or 2 instead of 0 (with bf16), and the stage and precision of "
            "the run that saved the checkpoint"
        ),
    ),
    FrameRule(
        id="loss-not-scalar",
        title="The loss has several values",
        message=r"shape '\[1?\]' is invalid for input of size|grad can be implicitly created only for scalar outputs|"
        r"a Tensor with \d{1,9} elements cannot be converted to Scalar|only one element tensors can be converted to",
        source=r"(?i:loss)",
        cause=(
            "{where} expects a single number, but the loss has several values, such as one for each sample or GPU "
            "({message})."
        ),
        remedy=(
            "take the mean of the loss: call loss.mean() in the script or set reduction='mean' in the loss function; "
            "if the code is in a package, upgrade the package, or use a micro batch of 1"
        ),
    ),
    FrameRule(
        id="number-not-a-multiple",
        title="A number is not a multiple of another",
        exceptions=("AssertionError",),
        message=r"\A(?![^\n]{0,300}(?:\d is not divisible by \d|FP8))",
        source=r"\bassert\b[^\n]{1,160}%[^\n]{1,80}== ?0",
        cause="{where} requires one number to be a multiple of another, but it is not: {message}",
        remedy=(
            "change one of the two numbers: the batch size (samples, rollouts, prompts) must be a multiple of "
            "the number of ranks on all nodes, times the micro-batch size or the number of generations; heads, "
            "layers, experts and sequence length must be divisible by their parallel sizes; use drop_last=True "
            "for the last batch"
        ),
    ),
    FrameRule(
        id="sampler-not-distributed",
        title="A sampler does not split the data among the ranks",
        exceptions=("AttributeError",),
        message=r"'(?P<kind>\w{0,40}Sampler)' object has no attribute 'set_epoch'",
        cause=(
            "{where} sets the epoch of a distributed sampler, but the loader has a {kind}: it was created without "
            "DistributedSampler, so each rank reads the same samples, or it was created by a framework that splits "
            "the samples itself."
        ),
        remedy=(
            "use DataLoader(sampler=DistributedSampler(dataset)) without shuffle=True; if the framework splits the "
            "data (accelerate, Lightning), or in a single process, leave the line out, or call set_epoch only if "
            "hasattr(loader.sampler, 'set_epoch')"
        ),
    ),
    FrameRule(
        id="object-instead-of-dictionary",
        title="An option got an object instead of its settings",
        exceptions=("AttributeError",),
        message=r"'(?P<kind>[A-Z]\w{1,60})' object has no attribute '(?:keys|items|get|values)'",
        raised_by="package",
        cause=(
            "{where}: {package} expects a dictionary of settings and got an object of type {kind}: the object itself "
            "was passed, or the dictionary was used for an earlier call, which replaced its entry with the object."
        ),
        remedy=(
            "pass the name or settings instead of the object, and pass a new dictionary to each call "
            "(copy.deepcopy(settings))"
        ),
        certain=False,
    ),
    FrameRule(
        id="recompiled-too-often",
        title="torch.compile recompiled the model too many times",
        message=r"(?:cache_size_limit|recompile_limit)\b[^\n]{0,60}reached|RecompileLimitExceeded|"
        r"FailOnRecompileLimitHit|hit config\.\w{0,20}(?:cache_size|recompile)_limit",
        cause=(
            "{where}: torch.compile recompiled this code for each new shape, number or state until it reached its "
            "limit, and fullgraph=True does not allow the code to run uncompiled."
        ),
        remedy=(
            "use torch.compile(model, dynamic=True), pad batches to a few fixed lengths, leave fullgraph=True out, "
            "or raise torch._dynamo.config.recompile_limit (cache_size_limit before torch 2.7) to 64. To see the "
            "reasons for recompiling, set TORCH_LOGS=recompiles in launch_environment"
        ),
        over=("compile-failed",),
    ),
    FrameRule(
        id="dummy-without-configuration",
        title="An accelerate placeholder has no settings",
        message=r"DummyScheduler|DummyOptim",
        exceptions=("ValueError",),
        cause=(
            "{where}: accelerate's DummyOptim and DummyScheduler stand in for the optimizer and scheduler in the "
            "DeepSpeed configuration, but the script does not match that file: {message}"
        ),
        remedy=(
            'if the DeepSpeed file (deepspeed_config_file) has an "optimizer" or "scheduler", use DummyOptim or '
            "DummyScheduler in the script; otherwise create a real one (torch.optim.AdamW, get_scheduler)"
        ),
    ),
    FrameRule(
        id="random-states-of-more-gpus",
        title="A checkpoint has random states for more GPUs",
        exceptions=("IndexError",),
        source=r"default_generators\[|set_rng_state_all\(",
        cause=(
            "{where} restores the random states of more GPUs than this process sees: the checkpoint was saved on a "
            "node with more GPUs, or by a process that saw more of them."
        ),
        remedy=(
            "resume with the same number of GPUs per node; or skip the extra states: for index, state in "
            "enumerate(states[:torch.cuda.device_count()]): torch.cuda.set_rng_state(state, index) (the random "
            "numbers drawn after that differ); if the Trainer restores them, upgrade transformers"
        ),
    ),
    FrameRule(
        id="fp8-sizes",
        title="FP8 requires sizes that are multiples of 8 and 16",
        message=r"FP8[^\n]{0,200}divisible by|dims=\[[\d, ]{1,60}\] not divisible by \d",
        cause=(
            "{where}: FP8 supports only sizes that are multiples of 8 and 16, but on this rank the number of tokens or "
            "one of the model's dimensions is not such a multiple: {message}"
        ),
        remedy=(
            "pad sequences so that the number of tokens per rank (sequence length divided by the tensor and context "
            "parallel sizes) is a multiple of 16 (32 for MXFP8); set drop_last=True; or turn FP8 or sequence "
            "parallelism off"
        ),
    ),
    FrameRule(
        id="devices-missing",
        title="torch sees no GPU, although the configuration requires several",
        message=r"(?i:world.?size (?:is |of )?\d{1,6} but (?:have|has|found|only) 0\b)",
        cause="{where}: torch sees no GPU in this process ({message}).",
        remedy=(
            "on that node, run python -c 'import torch; print(torch.version.cuda, torch.cuda.is_available())' in the "
            "job's environment. If it prints None, install torch with CUDA; if it prints False, request the GPUs for "
            "this step (srun --gres=gpu:N, or --gpus all for a container), or check the driver and "
            "CUDA_VISIBLE_DEVICES"
        ),
    ),
    FrameRule(
        id="one-process-for-all",
        title="One process is configured to use more GPUs than its node has",
        message=r"(?i:world.?size (?:is |of )?(?P<size>\d{1,6}) but (?:have|has|found|only) (?P<have>[1-9]\d{0,4})\b)",
        cause=(
            "{where}: the configuration asks for {size} ranks, but the script was started without a launcher, so it "
            "tries to start all of them on this node, which has {have} GPUs."
        ),
        remedy=(
            "start the script with torchrun on all nodes, muster's default, and leave the world size out of the "
            "configuration (fairseq: distributed_training.distributed_world_size); on a single node, set the world "
            "size to {have}"
        ),
    ),
    *(
        FrameRule(
            id=f"attention-in-fp32-{number}",
            title=title,
            message=message,
            source=source,
            cause=(
                "{where}: FlashAttention supports only fp16 and bf16, but the tensors are fp32: the model was loaded "
                "or is trained in fp32, or a layer (rotary embedding, norm, adapter) returns fp32."
            ),
            remedy=(
                "use torch_dtype=torch.bfloat16 in from_pretrained together with --bf16 True (fp16 on GPUs older "
                'than Ampere), which runs in autocast; or set attn_implementation="sdpa" (use_flash_attn=False)'
            ),
        )
        for number, (title, message, source) in enumerate(
            (
                ("FlashAttention got fp32", r"(?i:flash.?attention only supports? (?:fp16|half))", ""),
                (
                    "A model's attention got fp32 tensors",
                    r"\AAssertionError",
                    r"\bassert\b[^\n]{0,160}dtype[^\n]{0,80}(?:float16|bfloat16)",
                ),
            )
        )
    ),
    FrameRule(
        id="accelerator-created-twice",
        title="Two Accelerators have different settings",
        message=r"AcceleratorState has already been initialized and cannot be changed",
        cause=(
            "{where} creates an Accelerator or TrainingArguments with different settings from those of the first one "
            "in this process, which a library may have created (from_pretrained of trl, PartialState)."
        ),
        remedy=(
            "create a single Accelerator (or TrainingArguments) with all settings before anything else; or pass the "
            "precision to accelerate launch (--mixed_precision) and not in the script; calling "
            "AcceleratorState._reset_state(True) before the second one also works"
        ),
    ),
    FrameRule(
        id="compiled-for-other-sizes",
        title="Compiled code got a tensor of a different shape",
        exceptions=("AssertionError",),
        source=r"assert_size_stride\(",
        cause=(
            "{where}: code compiled by torch.compile got a tensor of a different shape or layout than it was "
            "compiled for ({message}), because the code was reused for another layer, which FSDP allows, or was "
            "cached by a different version."
        ),
        remedy=(
            "compile whole blocks (transformer layers), not single linear layers; upgrade torch; remove "
            '/tmp/torchinductor_$USER on all nodes; or launch with -e \'{{"launch_environment": '
            '{{"TORCH_COMPILE_DISABLE": "1"}}}}\' to train without compilation'
        ),
    ),
    FrameRule(
        id="requirement-not-met",
        title="A feature requires different hardware or software",
        exceptions=("AssertionError", "RuntimeError", "ValueError", "NotImplementedError", "ImportError"),
        message=r"(?P<what>[\w .,'`/-]{3,80}?) (?:requires?|needs?|is only (?:supported|available) (?:on|with|for)) "
        r"(?P<need>[^\n]{0,60}(?:Hopper|Ampere|Ada|Blackwell|compute capability|\b[Ss][Mm]_?\d|CUDA ?[>=]|CUDA \d|"
        r"cuDNN|[Cc]ompute [Cc]apability)[^\n]{0,80}?)(?=\.?\s{0,3}(?:\n|\Z))",
        raised_by="package",
        cause="{where}: {what} needs {need}, but this node or environment does not have it.",
        remedy=(
            "use nodes, an image or an environment that meets this requirement (run nvidia-smi and python -c "
            "'import torch; print(torch.version.cuda)' on the node to see what is available), or turn that "
            "feature off"
        ),
    ),
    FrameRule(
        id="offloaded-weights-on-gpu",
        title="FSDP offloads to the CPU, but the weights are on the GPU",
        message=r"assign a gradient with device type 'cpu' to a tensor with device type 'cuda'",
        cause=(
            "{where}: FSDP keeps gradients on the CPU (CPU offload), but the weights are on the GPU: they were moved "
            "or loaded there after they were wrapped."
        ),
        remedy=(
            "leave the model on the CPU: do not call .to('cuda') after fully_shard, and load checkpoints with "
            "map_location='cpu' (use model.to_empty(device='cpu') for meta weights); or turn CPU offload off"
        ),
    ),
    FrameRule(
        id="classes-of-data-differ",
        title="The dataset and the model have different numbers of classes",
        message=r"(?i:num_classes|number of classes|num_labels)[^\n]{0,100}(?:do(?:es)? not match\w*|differs? from|not "
        r"equal|mismatch)",
        cause="{where}: the model and the dataset have different numbers of classes: {message}",
        remedy=(
            "set both num_classes of each head and the class names of the dataset in train, val and test (mmdet 2: "
            "classes=('a', 'b'); mmdet 3: metainfo=dict(classes=(...))); if you edited a class list in the package, "
            "install that copy (pip install -e .)"
        ),
    ),
    FrameRule(
        id="registry-name-none",
        title="A part of the configuration does not set its type",
        exceptions=("KeyError",),
        message=r"KeyError: ['\"]None is not in the (?P<registry>[\w:. ]{1,60}) registry",
        cause=(
            "{where}: a part of the configuration that defines a {registry} has type=None: its type is missing, or "
            "was overwritten or deleted by a configuration that inherits from it."
        ),
        remedy=(
            "run print(cfg.pretty_text), or python tools/misc/print_config.py CONFIG, to see which part it is; set "
            "its type (type='CocoDataset' in data.train, val and test)"
        ),
    ),
    FrameRule(
        id="refusal-failed",
        title="Reporting an invalid setting failed",
        exceptions=("AttributeError", "NameError", "TypeError", "KeyError"),
        raised_by="package",
        source=r"f?[\"'][^\n]{0,160}(?:[Ii]nvalid|[Mm]ust be|[Nn]ot supported|[Uu]nsupported|[Uu]nknown|[Ee]xpected)"
        r"[^\n]{0,300}\{[^\n]{1,200}\Z",
        cause=(
            "{package} rejects a value that {where} passes to it, and the line that should have reported this "
            "itself failed, so {message} is not the actual reason: {inner}"
        ),
        remedy=(
            "correct the option that this line checks (its documentation lists the allowed values); upgrade "
            "{package} to get the complete message"
        ),
    ),
    FrameRule(
        id="hooks-in-static-graph",
        title="DDP was told that the graph is static, but it is used differently",
        message=r"expect_autograd_hooks_ INTERNAL ASSERT FAILED",
        cause=(
            "{where}: DistributedDataParallel did not expect this backward pass: with static_graph=True, its first "
            "step ran within no_sync() (gradient accumulation), or several backward passes follow one forward pass."
        ),
        remedy=(
            "set static_graph=False; or run the first step without no_sync(), and add the losses for a single "
            "backward pass: (loss_a + loss_b).backward()"
        ),
    ),
    FrameRule(
        id="parts-compiled",
        title="accelerate treats a partly compiled model as compiled",
        exceptions=("AttributeError",),
        message=r"object has no attribute '_orig_mod'",
        source=r"\b_orig_mod\b",
        packages=("accelerate", "transformers", "diffusers", "lightning", "pytorch_lightning"),
        raised_by="package",
        cause=(
            "{where}: {package} treats the whole model as compiled (torch.compile), but only parts of it are, or it "
            "was compiled before it was wrapped."
        ),
        remedy=(
            "upgrade {package}; or compile the whole model after accelerator.prepare, or nothing at all; in your own "
            "code, get the model from the wrapper: model.module"
        ),
    ),
    FrameRule(
        id="loss-of-two-types",
        title="The loss mixes precisions",
        message=r"Found dtype (?:Half|BFloat16|Float) but expected (?:Half|BFloat16|Float)",
        cause=(
            "{where}: the loss was computed from tensors of different precision ({message}): predictions in fp16 or "
            "bf16 and targets in fp32, or the other way around."
        ),
        remedy=(
            "compute the loss in fp32: F.mse_loss(prediction.float(), target.float()) (recent versions of torch do "
            "so within autocast)"
        ),
    ),
    FrameRule(
        id="mesh-dimension-missing",
        title="The device mesh lacks a dimension",
        exceptions=("KeyError",),
        message=r"Invalid mesh_dim_names? (?P<wanted>[^\n]{1,100}?) specified\. Valid mesh_dim_names are "
        r"(?P<valid>\[[^\]\n]{0,200}\])",
        cause=(
            "{where} requests {wanted} from the device mesh, which has only {valid}: the parallelism sizes do not "
            "include that dimension, although the configuration uses it."
        ),
        remedy=(
            "give that dimension a size, so that the product of all sizes is the number of ranks (accelerate: "
            "parallelism_config_dp_shard_size for FSDP, tp_size, cp_size); or leave out what is not used "
            "(fsdp_config with tensor parallelism only)"
        ),
    ),
    FrameRule(
        id="mesh-not-hybrid",
        title="Hybrid sharding requires a two-dimensional mesh",
        message=r"Expected device_mesh to have ndim=2 but got 1|(?:HYBRID_SHARD|hybrid shard\w*)[^\n]{0,100}(?:process "
        r"groups?|device_mesh|2-?D)",
        cause=(
            "{where}: hybrid sharding splits the weights within groups of ranks and replicates them across the "
            "groups, but the mesh or process group has only one dimension."
        ),
        remedy=(
            "use init_device_mesh('cuda', (NODES, GPUS_PER_NODE), mesh_dim_names=('replicate', 'shard')); or shard "
            "over all ranks (FULL_SHARD)"
        ),
    ),
    FrameRule(
        id="advice-of-message",
        title="The error message itself says what to do",
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
        remedy=AS_STATED,
    ),
    FrameRule(
        id="options-exclude-each-other",
        title="Two options exclude each other",
        exceptions=(
            "ValueError",
            "NotImplementedError",
            "AssertionError",
            "RuntimeError",
            "MisconfigurationException",
            "DeepSpeedConfigError",
        ),
        message=rf"(?P<first>{OPTION}) (?:and|with|together with|in combination with) (?P<second>{OPTION}),? "
        r"(?:is|are|cannot be|can't be|can not be|may not be|must not be) (?:not supported|unsupported|mutually "
        r"exclusive|incompatible|not compatible|used together|set together|specified together|combined|both)",
        fallback=True,
        cause="{where} combines two options that exclude each other: {message}",
        remedy="set only one of {first} and {second}; if one of them is on by default, turn it off with =False",
    ),
)

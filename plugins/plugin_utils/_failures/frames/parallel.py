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
        cause="{where}: a size does not divide by the number of parts: {message}",
        remedy="change the option that the message names, or the number of ranks (the data-parallel size is the ranks "
        "divided by the tensor, pipeline and context sizes): a pipeline size that divides the layers (or uneven "
        "stages in Megatron: --decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers), a tensor size "
        "that divides the attention and key-value heads, an expert size that divides the experts, a context size of "
        "which twice divides the sequence length",
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
        source=r"(?i:load|resume)",
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
        r"supported)[^\n]{0,20}(?:on|for|by) (?:the )?CPUs?(?: training)?[.!]?\s{0,3}(?:\n|\Z)|"
        r"requires? a (?:GPU|CUDA device)[.!]?\s{0,3}(?:\n|\Z))",
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
        id="gradient-type-unexpected",
        title="DeepSpeed gets gradients of a type that it does not expect",
        exceptions=("KeyError",),
        packages=("deepspeed",),
        message=r"KeyError: (?P<type>torch\.(?:float32|float16|bfloat16))",
        cause="{where}: DeepSpeed has no buffer for gradients of {type}: the weights have another precision than the "
        "configuration says (bf16, fp16, communication_data_type), or adapters and norms have another one than the "
        "rest.",
        remedy='remove "communication_data_type"; "bf16": {{"enabled": true}} (or fp16) for a model in that '
        "precision; cast the rest: model.to(torch.bfloat16); then upgrade deepspeed, whose newer releases accept "
        "several",
    ),
    FrameRule(
        id="accumulation-types",
        title="DeepSpeed refuses bf16 with ZeRO",
        message=r"Model data type and gradient accumulation data type must be equal|BF16 optimizer for ZeRO requires "
        r"fp32 gradient accumulation",
        cause="{where}: {message}. Without data_types in the configuration it is a fault of DeepSpeed 0.7.6 to 0.8.0 "
        "with bf16.",
        remedy='upgrade deepspeed (0.8.1 or later); and leave "data_types": {{"grad_accum_dtype": ...}} out of the '
        "configuration, or set it to the precision of the model",
    ),
    FrameRule(
        id="optimizer-lacks-method",
        title="DeepSpeed does not support a combination of options",
        exceptions=("AttributeError",),
        packages=("deepspeed",),
        message=r"'(?P<class>\w{0,40}Optimizer\w{0,40})' object has no attribute '(?P<name>\w{1,80})'",
        raised_by="package",
        cause="{where}: DeepSpeed calls {name} of {class}, the optimizer of this configuration, which does not have "
        "it: this release does not support the combination of ZeRO stage, precision and offload here, or the "
        "checkpoint was saved with another one.",
        remedy="upgrade deepspeed; or choose ZeRO stage 1 or 2 in place of 0 (with bf16), and the stage and precision "
        "of the run that saved the checkpoint",
    ),
    FrameRule(
        id="loss-not-scalar",
        title="The loss has several values",
        message=r"shape '\[1?\]' is invalid for input of size|grad can be implicitly created only for scalar outputs|"
        r"a Tensor with \d{1,9} elements cannot be converted to Scalar|only one element tensors can be converted to",
        source=r"(?i:loss)",
        cause="{where} expects one number, and the loss has several, such as one for each sample or GPU ({message}).",
        remedy="take its mean: loss.mean() in the script or function of the loss (reduction='mean'); within a package "
        "upgrade it, or use a micro batch of 1",
    ),
    FrameRule(
        id="number-not-a-multiple",
        title="A number is not a multiple of another",
        exceptions=("AssertionError",),
        message=r"\A(?![^\n]{0,300}(?:\d is not divisible by \d|FP8))",
        source=r"\bassert\b[^\n]{1,160}%[^\n]{1,80}== ?0",
        cause="{where} requires that one number is a multiple of another, and they are not: {message}",
        remedy="change one of the two: a batch (samples, rollouts, prompts) that is a multiple of the number of ranks "
        "on all nodes, times the micro batch or generations; heads, layers, experts and sequence length that divide "
        "by their parallel sizes; drop_last=True for the last batch",
    ),
    FrameRule(
        id="sampler-not-distributed",
        title="A sampler does not split the data among the ranks",
        exceptions=("AttributeError",),
        message=r"'(?P<kind>\w{0,40}Sampler)' object has no attribute 'set_epoch'",
        cause="{where} sets the epoch of a distributed sampler, and the loader has a {kind}: it was created without "
        "DistributedSampler, so that each rank reads the same samples, or by a framework that splits them itself.",
        remedy="DataLoader(sampler=DistributedSampler(dataset)) without shuffle=True; if the framework splits the data "
        "(accelerate, Lightning), or in one process, leave the line out, or call set_epoch only if "
        "hasattr(loader.sampler, 'set_epoch')",
    ),
    FrameRule(
        id="object-instead-of-dictionary",
        title="An option got an object where its settings belong",
        exceptions=("AttributeError",),
        message=r"'(?P<kind>[A-Z]\w{1,60})' object has no attribute '(?:keys|items|get|values)'",
        raised_by="package",
        cause="{where}: {package} expects a dictionary of settings and got an object of {kind}: the object itself was "
        "passed, or the dictionary was used for an earlier call, which replaced its entry by the object.",
        remedy="pass the name or settings instead of the object, and a new dictionary to each call "
        "(copy.deepcopy(settings))",
        certain=False,
    ),
    FrameRule(
        id="recompiled-too-often",
        title="torch.compile compiled the model too often",
        message=r"(?:cache_size_limit|recompile_limit)\b[^\n]{0,60}reached|RecompileLimitExceeded|"
        r"FailOnRecompileLimitHit|hit config\.\w{0,20}(?:cache_size|recompile)_limit",
        cause="{where}: torch.compile compiled this code anew for each new shape, number or state until its limit, "
        "and fullgraph=True forbids to run it uncompiled.",
        remedy="torch.compile(model, dynamic=True), or pad batches to few lengths; leave fullgraph=True out; or raise "
        "torch._dynamo.config.recompile_limit (cache_size_limit before torch 2.6) to 64; TORCH_LOGS=recompiles in "
        "launch_environment names the reasons",
        over=("compile-failed",),
    ),
    FrameRule(
        id="dummy-without-configuration",
        title="A placeholder of accelerate has no settings",
        message=r"DummyScheduler|DummyOptim",
        exceptions=("ValueError",),
        cause="{where}: accelerate's DummyOptim and DummyScheduler stand for those of the DeepSpeed configuration, "
        "and the script and that file do not agree: {message}",
        remedy='with an "optimizer" or "scheduler" in the DeepSpeed file (deepspeed_config_file), use DummyOptim or '
        "DummyScheduler in the script; without it, create a real one (torch.optim.AdamW, get_scheduler)",
    ),
    FrameRule(
        id="random-states-of-more-gpus",
        title="A checkpoint has random states of more GPUs",
        exceptions=("IndexError",),
        source=r"default_generators\[|set_rng_state_all\(",
        cause="{where} restores the random states of more GPUs than this process sees: the checkpoint was saved on a "
        "node, or by a process, with more GPUs.",
        remedy="resume with as many GPUs per node; or skip them: for index, state in "
        "enumerate(states[:torch.cuda.device_count()]): torch.cuda.set_rng_state(state, index) (the numbers drawn "
        "after that differ); upgrade transformers for its Trainer",
    ),
    FrameRule(
        id="fp8-sizes",
        title="FP8 needs sizes that are multiples of 8 and 16",
        message=r"FP8[^\n]{0,200}divisible by|dims=\[[\d, ]{1,60}\] not divisible by \d",
        cause="{where}: FP8 computes only with sizes that are multiples of 8 and 16, and the number of tokens or a "
        "size of the model on this rank is not: {message}",
        remedy="pad sequences, so that tokens per rank (sequence length divided by the tensor and context parallel "
        "sizes) are a multiple of 16 (32 for MXFP8); drop_last=True; or turn FP8 or sequence parallelism off",
    ),
    FrameRule(
        id="devices-missing",
        title="torch sees no GPU, though the configuration counts on several",
        message=r"(?i:world.?size (?:is |of )?\d{1,6} but (?:have|has|found|only) 0\b)",
        cause="{where}: torch sees no GPU in this process ({message}).",
        remedy="in the job's environment on that node: python -c 'import torch; print(torch.version.cuda, "
        "torch.cuda.is_available())': None: install torch with CUDA; False: request the GPUs for this step (srun "
        "--gres=gpu:N, --gpus all for a container), or look at the driver and CUDA_VISIBLE_DEVICES",
    ),
    FrameRule(
        id="one-process-for-all",
        title="One process is to use more GPUs than its node has",
        message=r"(?i:world.?size (?:is |of )?(?P<size>\d{1,6}) but (?:have|has|found|only) (?P<have>[1-9]\d{0,4})\b)",
        cause="{where}: the configuration asks for {size} ranks, and the script was started without a launcher, so "
        "that it looks for all of them among the {have} GPUs of this node.",
        remedy="start it with torchrun on all nodes, muster's default, and leave the world size out of the "
        "configuration (fairseq: distributed_training.distributed_world_size); on one node set it to {have}",
    ),
    *(
        FrameRule(
            id=f"attention-in-fp32-{number}",
            title=title,
            message=message,
            source=source,
            cause="{where}: FlashAttention computes in fp16 or bf16 only, and the tensors are fp32: the model was "
            "loaded or is trained in fp32, or a layer (rotary embedding, norm, adapter) returns fp32.",
            remedy="torch_dtype=torch.bfloat16 in from_pretrained together with --bf16 True (fp16 before Ampere), "
            'which runs in autocast; or attn_implementation="sdpa" (use_flash_attn=False)',
        )
        for number, (title, message, source) in enumerate(
            (
                ("FlashAttention got fp32", r"(?i:flash.?attention only supports? (?:fp16|half))", ""),
                (
                    "Attention of a model got fp32",
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
        cause="{where} creates an Accelerator or TrainingArguments with other settings than the first one in this "
        "process, which a library may have created (from_pretrained of trl, PartialState).",
        remedy="create the Accelerator (or TrainingArguments) with all settings before anything else, and only one; or "
        "give the precision to accelerate launch (--mixed_precision) and not in the script; "
        "AcceleratorState._reset_state(True) before the second one also works",
    ),
    FrameRule(
        id="compiled-for-other-sizes",
        title="Compiled code got a tensor of another shape",
        exceptions=("AssertionError",),
        source=r"assert_size_stride\(",
        cause="{where}: code of torch.compile got a tensor of another shape or layout than it was compiled for "
        "({message}), since it was reused for another layer, which FSDP allows, or was cached by another release.",
        remedy="compile whole blocks (transformer layers), not single linear layers; upgrade torch; remove "
        "/tmp/torchinductor_$USER on all nodes; or train without it: -e "
        """'{{"launch_environment": {{"TORCH_COMPILE_DISABLE": "1"}}}}'""",
    ),
    FrameRule(
        id="requirement-not-met",
        title="A feature needs other hardware or software",
        exceptions=("AssertionError", "RuntimeError", "ValueError", "NotImplementedError", "ImportError"),
        message=r"(?P<what>[\w .,'`/-]{3,80}?) (?:requires?|needs?|is only (?:supported|available) (?:on|with|for)) "
        r"(?P<need>[^\n]{0,60}(?:Hopper|Ampere|Ada|Blackwell|compute capability|\b[Ss][Mm]_?\d|CUDA ?[>=]|CUDA \d|"
        r"cuDNN|[Cc]ompute [Cc]apability)[^\n]{0,80}?)(?=\.?\s{0,3}(?:\n|\Z))",
        raised_by="package",
        cause="{where}: {what} needs {need}, and this node or environment does not have it.",
        remedy="run on nodes, or in an image or environment, that have it (nvidia-smi and python -c 'import torch; "
        "print(torch.version.cuda)' on the node show what there is), or turn that feature off",
    ),
    FrameRule(
        id="offloaded-weights-on-gpu",
        title="FSDP offloads to the CPU, and the weights are on the GPU",
        message=r"assign a gradient with device type 'cpu' to a tensor with device type 'cuda'",
        cause="{where}: FSDP keeps gradients on the CPU (CPU offload), and the weights are on the GPU: they were moved "
        "or loaded there after they were wrapped.",
        remedy="leave the model on the CPU: no .to('cuda') after fully_shard, load checkpoints with "
        "map_location='cpu' (model.to_empty(device='cpu') for meta weights); or turn CPU offload off",
    ),
    FrameRule(
        id="classes-of-data-differ",
        title="The data set and the model have different numbers of classes",
        message=r"(?i:num_classes|number of classes|num_labels)[^\n]{0,100}(?:do(?:es)? not match\w*|differs? from|not "
        r"equal|mismatch)",
        cause="{where}: the model and the data set have different numbers of classes: {message}",
        remedy="set both: num_classes of each head, and the names of the data set in train, val and test "
        "(mmdet 2: classes=('a', 'b'); mmdet 3: metainfo=dict(classes=(...))); if a class list of the package was "
        "edited, install that copy (pip install -e .)",
    ),
    FrameRule(
        id="registry-name-none",
        title="A part of the configuration has no type",
        exceptions=("KeyError",),
        message=r"KeyError: ['\"]None is not in the (?P<registry>[\w:. ]{1,60}) registry",
        cause="{where}: a part of the configuration that is to become a {registry} has type=None: its type is missing, "
        "or was overwritten or deleted by a configuration that inherits from it.",
        remedy="print(cfg.pretty_text), or python tools/misc/print_config.py CONFIG, shows which part; set its type "
        "(type='CocoDataset' in data.train, val and test)",
    ),
    FrameRule(
        id="refusal-failed",
        title="The report of a wrong setting failed itself",
        exceptions=("AttributeError", "NameError", "TypeError", "KeyError"),
        raised_by="package",
        source=r"f?[\"'][^\n]{0,160}(?:[Ii]nvalid|[Mm]ust be|[Nn]ot supported|[Uu]nsupported|[Uu]nknown|[Ee]xpected)"
        r"[^\n]{0,300}\{[^\n]{1,200}\Z",
        cause="{package} refuses a value that {where} gives it, and the line which was to report that failed itself, "
        "so that {message} is not the reason: {inner}",
        remedy="correct the option that this line is about (its documentation lists the values); upgrade {package} to "
        "get the whole message",
    ),
    FrameRule(
        id="hooks-in-static-graph",
        title="DDP was told of a static graph and is used in another way",
        message=r"expect_autograd_hooks_ INTERNAL ASSERT FAILED",
        cause="{where}: DistributedDataParallel did not expect this backward pass: with static_graph=True its first "
        "step ran within no_sync() (gradient accumulation), or several backward passes follow one forward pass.",
        remedy="static_graph=False; or run the first step without no_sync(), and add the losses for one backward pass: "
        "(loss_a + loss_b).backward()",
    ),
    FrameRule(
        id="parts-compiled",
        title="accelerate takes a model of compiled parts as compiled",
        exceptions=("AttributeError",),
        message=r"object has no attribute '_orig_mod'",
        source=r"\b_orig_mod\b",
        packages=("accelerate", "transformers", "diffusers", "lightning", "pytorch_lightning"),
        raised_by="package",
        cause="{where}: {package} takes the whole model as compiled (torch.compile), and only parts of it are, or it "
        "was compiled before it was wrapped.",
        remedy="upgrade {package}; or compile the whole model after accelerator.prepare, or nothing; in your own code "
        "take the model from the wrapper: model.module",
    ),
    FrameRule(
        id="loss-of-two-types",
        title="The loss mixes precisions",
        message=r"Found dtype (?:Half|BFloat16|Float) but expected (?:Half|BFloat16|Float)",
        cause="{where}: the loss was computed from tensors of different precision ({message}): predictions in fp16 or "
        "bf16 and targets in fp32, or the other way round.",
        remedy="compute it in fp32: F.mse_loss(prediction.float(), target.float()) (a recent torch does so within "
        "autocast)",
    ),
    FrameRule(
        id="mesh-dimension-missing",
        title="The device mesh lacks a dimension",
        exceptions=("KeyError",),
        message=r"Invalid mesh_dim_names? (?P<wanted>[^\n]{1,100}?) specified\. Valid mesh_dim_names are "
        r"(?P<valid>\[[^\]\n]{0,200}\])",
        cause="{where} takes {wanted} of the device mesh, which has only {valid}: the sizes of the parallelism do not "
        "contain that kind, though the configuration uses it.",
        remedy="give it a size: the product of all sizes is the number of ranks (accelerate: "
        "parallelism_config_dp_shard_size for FSDP, tp_size, cp_size); or leave out what is not used (fsdp_config with "
        "tensor parallelism only)",
    ),
    FrameRule(
        id="mesh-not-hybrid",
        title="Hybrid sharding needs a mesh of two dimensions",
        message=r"Expected device_mesh to have ndim=2 but got 1|(?:HYBRID_SHARD|hybrid shard\w*)[^\n]{0,100}(?:process "
        r"groups?|device_mesh|2-?D)",
        cause="{where}: hybrid sharding splits the weights within groups of ranks and copies them between these, and "
        "the mesh or process group has one dimension only.",
        remedy="init_device_mesh('cuda', (NODES, GPUS_PER_NODE), mesh_dim_names=('replicate', 'shard')); or sharding "
        "over all ranks (FULL_SHARD)",
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
        remedy="set only one of {first} and {second}; one that is on by default needs =False",
    ),
)

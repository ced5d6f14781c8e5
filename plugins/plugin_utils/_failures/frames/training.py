# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for common mistakes in training loops: gradients, precision, optimizers, sharded models and batches."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.rule import FrameRule

TOPIC = "Training loops"
RULES: tuple[FrameRule, ...] = (
    FrameRule(
        id="no-gradients-to-check",
        title="The gradient scaler finds no gradients",
        message=r"No inf checks were recorded for this optimizer",
        cause=(
            "{where}: no parameter of the optimizer had a gradient when the gradient scaler was about to step: "
            "the backward pass was skipped, its loss depends on none of the parameters (a skipped or constant "
            "loss, frozen layers), or the optimizer holds different parameters from the model's, such as those "
            "from before the model was wrapped."
        ),
        remedy=(
            "call step only after scaler.scale(loss).backward() for the same batch (`if loss.requires_grad:`, "
            "the same on all ranks), and create the optimizer from model.parameters() after the model was "
            "wrapped or moved"
        ),
    ),
    FrameRule(
        id="scaler-out-of-order",
        title="The gradient scaler is called in the wrong order",
        message=r"unscale_\(\) (?:has already been called|is being called after step)|step\(\) has already been called "
        r"since "
        r"the last update|Attempted \w{1,20} but _scale is None",
        cause="{where} calls the gradient scaler in the wrong order: {message}",
        remedy=(
            "make these calls once per optimizer step, in this order: scaler.scale(loss).backward(), "
            "scaler.unscale_(optimizer) for clipping, scaler.step(optimizer), scaler.update(); with gradient "
            "accumulation, make the last three calls only in the step that updates, and clip only once"
        ),
    ),
    FrameRule(
        id="graph-used-twice",
        title="A graph is used for two backward passes",
        message=r"Trying to backward through the graph a second time",
        cause=(
            "{where} runs backward through a graph that an earlier backward pass has freed: a tensor from an "
            "earlier step (a hidden state, a cached feature or embedding, an accumulated loss) is used again "
            "with its graph."
        ),
        remedy=(
            "detach what is kept between steps (hidden = hidden.detach(), total += loss.item()); compute shared "
            "features again in each step; use retain_graph=True only for two losses from one forward pass"
        ),
    ),
    FrameRule(
        id="leaf-changed-in-place",
        title="A weight is changed in place",
        message=r"a leaf Variable that requires grad (?:is being used in an in-place|has been used in an in-place)|a "
        r"view of a "
        r"leaf Variable that requires grad",
        cause="{where} changes a weight in place while gradients are being recorded.",
        remedy="wrap the change in `with torch.no_grad():` (or change parameter.data)",
    ),
    FrameRule(
        id="inference-tensor-trained",
        title="A tensor from inference mode is used in training",
        message=r"Inference tensors cannot be saved for backward|[Ii]nplace update to inference tensor outside",
        cause=(
            "In training, {where} uses a tensor that was created under torch.inference_mode(), such as a cached "
            "position or a weight that was loaded during evaluation."
        ),
        remedy=(
            "use torch.no_grad() instead of torch.inference_mode() (Trainer(inference_mode=False) in Lightning), or "
            "call .clone() on the tensor"
        ),
    ),
    FrameRule(
        id="no-parameters-to-train",
        title="The optimizer has no parameters",
        message=r"optimizer got an empty parameter list",
        cause=(
            "{where} creates an optimizer without parameters: all are frozen, a name filter matches none, the "
            "parameter generator was already used up, or the model is empty on this rank (a pipeline stage)."
        ),
        remedy=(
            "print [name for name, value in model.named_parameters() if value.requires_grad] before that line; if a "
            "filter or generator is used twice, turn it into a list"
        ),
    ),
    FrameRule(
        id="not-a-leaf",
        title="The optimizer gets a tensor that is not a leaf",
        message=r"can't optimize a non-leaf Tensor",
        cause="{where} gives the optimizer a tensor that was computed from another one, for example by .to(device) or "
        ".cuda() on a parameter.",
        remedy=(
            "move the tensor first: torch.nn.Parameter(torch.zeros(..., device=device)); move whole modules with "
            "model.to(device) before the optimizer is created"
        ),
    ),
    FrameRule(
        id="initial-lr-missing",
        title="A scheduler resumes without the optimizer's state",
        message=r"param 'initial_lr' is not specified in param_groups",
        cause="{where} creates a scheduler with last_epoch before the optimizer's state was loaded.",
        remedy=(
            "call optimizer.load_state_dict(...) first, or create the scheduler with last_epoch=-1 and call "
            "scheduler.load_state_dict(...)"
        ),
    ),
    FrameRule(
        id="scheduler-exhausted",
        title="The scheduler has fewer steps than the training run",
        message=r"Tried to step (?P<done>\d{1,9}) times\. The total number of steps is (?P<total>\d{1,9})",
        cause=(
            "{where}: the learning rate schedule has {total} steps, but training takes more: total_steps was "
            "computed for different numbers of batches, ranks, accumulation steps or epochs, or the run was resumed."
        ),
        remedy=(
            "set total_steps = epochs * len(loader) // accumulation, using the loader after it was split among "
            "the ranks; accelerate steps a prepared scheduler once per process, so multiply by the number of "
            "ranks, or do not prepare the scheduler"
        ),
    ),
    FrameRule(
        id="mask-overflow",
        title="A number is too large for fp16",
        message=r"value cannot be converted to type (?:at::Half|c10::Half|at::BFloat16|c10::BFloat16)? ?[\w:]{0,20} "
        r"?without overflow",
        cause="{where} writes a number that fp16 cannot represent, usually a mask of -1e9 or larger.",
        remedy="use torch.finfo(scores.dtype).min for masks, or bf16 instead of fp16",
    ),
    FrameRule(
        id="values-not-finite",
        title="The model computes NaN",
        message=r"matrix contains invalid numeric entries|found invalid values:|cost matrix is infeasible|cannot "
        r"convert float NaN to|"
        r"Input contains NaN|\bnan loss encountered|(?:[Ll]oss|grad\w{0,8}) (?:is|are|became) (?:nan|inf|NaN|Inf)",
        cause=(
            "{where} got NaN or infinite values ({message}): training had already diverged, or a sample in the data "
            "has such values."
        ),
        remedy=(
            "look at the first step with NaN: lower the learning rate, clip gradients (max_norm=1.0), use bf16 "
            "instead of fp16, and check the inputs with torch.isfinite; use "
            "torch.autograd.set_detect_anomaly(True) to find the operation"
        ),
    ),
    FrameRule(
        id="boxes-not-finite",
        title="The model predicts NaN boxes",
        exceptions=("AssertionError",),
        source=r"assert \(?boxes\d?\[",
        cause=(
            "{where}: the model predicts boxes with NaN values: training has diverged (a learning rate that is too "
            "high for the number of ranks, or fp16), or labels have boxes outside the image."
        ),
        remedy=(
            "lower the learning rate (it is often specified for a different global batch size), clip gradients "
            "(clip_max_norm=0.1), train without fp16, and remove boxes of zero size"
        ),
    ),
    FrameRule(
        id="label-type-wrong",
        title="Labels have the wrong type",
        message=r"expected scalar type Long but found|\"?nll_loss\w{0,60}\"? not implemented for "
        r"'(?!Half|BFloat16)\w{1,20}'|"
        r"expected scalar type Float but found (?:Long|Int|Double)|Found dtype (?:Long|Double) but expected Float|"
        r"result type Float can't be cast to the desired output type",
        cause="{where}: a tensor, usually the labels, does not have the type that the loss or layer expects: {message}",
        remedy=(
            "pass class labels as integers: labels.long(); pass inputs, and targets of regression or binary "
            "losses, as floats: .float() (numpy arrays are float64)"
        ),
    ),
    FrameRule(
        id="input-and-weight-differ",
        title="The input and the weights have different types or devices",
        message=r"Input type \((?P<first>[\w.:]{1,60})\) and (?:weight|bias) type \((?P<second>[\w.:]{1,60})\) should "
        r"be "
        r"the same",
        cause=(
            "{where}: the input is {first} and the weights are {second}: if cuda appears in only one of them, the "
            "other was not moved to the GPU; if Half, BFloat16 or Double appears in one, their precision differs."
        ),
        remedy=(
            "use x = x.to(device=next(model.parameters()).device, dtype=next(model.parameters()).dtype), or run "
            "the forward pass in torch.autocast('cuda', dtype=torch.bfloat16); call model.to(device) before the "
            "model is wrapped"
        ),
    ),
    FrameRule(
        id="gpu-tensor-to-numpy",
        title="A tensor cannot be converted to a numpy array",
        message=r"can't convert cuda:?\d{0,3} (?:device type )?tensor to numpy|Can't call numpy\(\) on Tensor that "
        r"requires grad|"
        r"Got unsupported ScalarType BFloat16",
        cause=(
            "{where} converts a tensor to a numpy array, but the tensor is on the GPU, requires a gradient or is bf16."
        ),
        remedy="tensor.detach().float().cpu().numpy()",
    ),
    FrameRule(
        id="pinned-gpu-tensor",
        title="The DataLoader pins GPU tensors",
        message=r"cannot pin 'torch\.cuda\.",
        cause=(
            "{where}: the dataset or collate function returns tensors on the GPU, but pin_memory=True needs them on "
            "the CPU."
        ),
        remedy=(
            "return tensors on the CPU and move them in the training loop (.to(device, non_blocking=True)); or set "
            "pin_memory=False (dataloader_pin_memory=False for the Trainer)"
        ),
    ),
    FrameRule(
        id="batch-not-collated",
        title="The samples of a batch are not tensors",
        message=r"(?:default_collate|collate): batch must contain tensors[^\n]{0,80}found (?P<kind>[^\n]{1,80})",
        cause=(
            "The dataset returns {kind} where the DataLoader expects tensors, numbers or lists ({where}): None "
            "for a sample that could not be read, or an image without ToTensor()."
        ),
        remedy=(
            "return a tensor from __getitem__; instead of None, return another sample (index + 1), so that all "
            "batches and ranks keep their sizes; or pass your own collate_fn"
        ),
    ),
    FrameRule(
        id="loop-never-ran",
        title="A loop variable has no value",
        exceptions=("UnboundLocalError",),
        message=r"variable '(?P<name>\w{1,80})'",
        raised_by="script",
        cause=(
            "{where} uses {name}, which was never set on this rank: the loop or branch that sets it did not run, "
            "because the DataLoader has no batches (fewer samples than ranks times batch size, drop_last=True), the "
            "run resumed at the end of an epoch, or the branch is `if rank == 0`."
        ),
        remedy=(
            "print len(loader) on each rank before the loop, and use a smaller batch, fewer ranks or "
            "drop_last=False; set {name} before the loop or branch"
        ),
        certain=False,
    ),
    FrameRule(
        id="no-batches",
        title="Division by a batch count of zero",
        exceptions=("ZeroDivisionError",),
        operation=True,
        cause=(
            "{where} divides by zero, usually by a number of batches, samples or steps: this rank's part of the data "
            "is smaller than one batch (drop_last=True), or the dataset is empty."
        ),
        remedy=(
            "print the lengths of the dataset and the loader on each rank; use a smaller batch, fewer ranks or "
            "drop_last=False, and check the data path on this node"
        ),
        certain=False,
    ),
    FrameRule(
        id="loader-exhausted",
        title="A DataLoader has no more batches",
        exceptions=("StopIteration",),
        source=r"next\(",
        cause=(
            "{where} takes a batch from a DataLoader that has none left: the epoch is over, or this rank's part of "
            "the data is smaller than one batch."
        ),
        remedy=(
            "restart the iterator: except StopIteration: iterator = iter(loader) (with sampler.set_epoch); or loop "
            "over the loader; if this happens in the first step, use a smaller batch or fewer ranks"
        ),
    ),
    FrameRule(
        id="loss-missing",
        title="The model returns no loss",
        message="The model did not return a loss from the inputs",
        cause=(
            "The batches have no labels that the model recognizes ({where}): the column has a different name or was "
            "removed, or the collator does not add them."
        ),
        remedy=(
            "name the column `labels` (or set label_names=[...] for other names), keep it with "
            "remove_unused_columns=False, and use DataCollatorForLanguageModeling(tokenizer, mlm=False) for causal "
            "language models"
        ),
    ),
    FrameRule(
        id="columns-unused",
        title="The dataset's columns do not match the model",
        message=r"No columns in the dataset match the model's forward method signature|You should supply an encoding "
        r"or a list of "
        r"encodings to this method that includes|You have to specify either input_ids or inputs_embeds",
        cause=(
            "The batches do not have the model's inputs ({where}): the dataset was not tokenized, its columns have "
            "different names, or the Trainer removed them."
        ),
        remedy=(
            "tokenize the dataset with dataset.map(...) so that it has input_ids, and set "
            "remove_unused_columns=False if your own collator or wrapped model needs other columns"
        ),
    ),
    FrameRule(
        id="uniform-requires-grad",
        title="FSDP combines frozen and trained weights",
        message=r"(?:Must flatten tensors with uniform|requires uniform) `?requires_grad`?",
        cause=(
            "{where}: FSDP combines the weights of a block into one tensor, but some of them are frozen while "
            "others are trained (LoRA, frozen layers)."
        ),
        remedy=(
            "use FSDP(..., use_orig_params=True) (fsdp_use_orig_params: true for accelerate and the Trainer); or "
            "wrap the trained layers separately (fsdp_auto_wrap_policy(model) from peft)"
        ),
    ),
    FrameRule(
        id="fsdp-on-cpu",
        title="FSDP's weights are not on the expected device",
        message=r"Expects tensor to be on the compute device|parameters should be materialized on CPU when enabling "
        r"CPU|"
        r"module has CPU parameters (?:or buffers )?when|FSDP parameters should be materialized on|"
        r"unexpectedly? on cpu device",
        cause=(
            "{where}: FSDP expects the weights on a different device ({message}): the model was still on the CPU "
            "when it was wrapped, it was moved after that, or CPU offload is on although the weights are on the "
            "GPU."
        ),
        remedy=(
            "pass device_id=torch.cuda.current_device() to FSDP, and do not move the model after that with "
            ".to(), .cuda() or .cpu(); load checkpoints after accelerator.prepare (upgrade transformers and "
            "accelerate); with CPU offload, leave the model on the CPU"
        ),
    ),
    FrameRule(
        id="sharded-storage-used",
        title="A sharded weight is used outside the forward pass",
        message=r"setStorage: sizes \[[\d, ]{0,60}\][^\n]{0,120}storage of size 0|mat2 must be a matrix, got 1-D "
        r"tensor|weight should "
        r"have at least three dimensions|Cannot writeback when the parameter shape changes",
        cause=(
            "{where} uses a weight of a sharded model (FSDP, ZeRO 3) while it is not gathered: the weight is used "
            "outside the forward pass of the wrapped module, such as a tied or shared weight, generate(), a "
            "submodule that is called directly, or a second forward pass within the backward pass."
        ),
        remedy=(
            "call the outermost wrapped module; gather weights explicitly (with FSDP.summon_full_params(model) "
            "or deepspeed.zero.GatheredParameters(parameters)); wrap modules with tied weights in one unit; for "
            "gradient checkpointing, set use_reentrant=False"
        ),
    ),
    FrameRule(
        id="recomputation-differs",
        title="Gradient checkpointing recomputes something different",
        message=r"A different number of tensors was saved during the original forward|Recomputed values for the "
        r"following tensors "
        r"have different metadata",
        cause=(
            "{where}: with gradient checkpointing, a block computed something different in the backward pass "
            "than in the forward pass: it uses a key-value cache (use_cache), it depends on state that changed "
            "(autocast, random numbers, the choice of experts), or FSDP wraps it inside the checkpoint."
        ),
        remedy=(
            "set model.config.use_cache = False; set gradient_checkpointing_kwargs={{'use_reentrant': True}} (or "
            "False, if it was True); or wrap blocks first in checkpoint_wrapper and then in FSDP "
            "(activation_checkpointing in fsdp_config, not gradient_checkpointing)"
        ),
        certain=False,
    ),
    FrameRule(
        id="backward-state-wrong",
        title="FSDP is in a different state than its backward pass expects",
        message=r"Expects BACKWARD_PRE or BACKWARD_POST state but got|Expects? (?:handle|param)[^\n]{0,60}training "
        r"state",
        cause=(
            "{where}: FSDP runs a forward pass within the backward pass because of reentrant gradient checkpointing "
            "around a module that FSDP wraps."
        ),
        remedy=(
            "set use_reentrant=False: gradient_checkpointing_kwargs={{'use_reentrant': False}}, or use fsdp_config "
            "activation_checkpointing instead of gradient_checkpointing"
        ),
    ),
    FrameRule(
        id="automatic-value-unknown",
        title='A value of "auto" in DeepSpeed\'s configuration was not replaced',
        message=r"input_value='auto'|(?:not supported between instances of|unsupported operand type\(s\) "
        r"for)[^\n]{1,60}'str' and '(?:int|"
        r"float)'|could not convert string to float: 'auto'|invalid literal for int\(\) with base 10: 'auto'",
        packages=("deepspeed",),
        cause='DeepSpeed got "auto" for a number in its configuration ({where}): only the Hugging Face Trainer and '
        "accelerate replace such values.",
        remedy=(
            'write numbers instead of "auto" (train_micro_batch_size_per_gpu, gradient_accumulation_steps, '
            "gradient_clipping, reduce_bucket_size, stage3_* ...), or pass the configuration through "
            "TrainingArguments(deepspeed=...)"
        ),
    ),
    FrameRule(
        id="deepspeed-not-initialized",
        title="DeepSpeed's communication is not initialized",
        message=r"DeepSpeed backend not set, please initialize it|deepspeed\.init_distributed|DeepSpeed backend (?:is "
        r")?not initialized",
        cause="{where} uses DeepSpeed before its communication is initialized.",
        remedy=(
            "call deepspeed.init_distributed() at the start of the script, before the model is built, and start the "
            "script with a launcher for all ranks"
        ),
    ),
    FrameRule(
        id="tensor-not-contiguous",
        title="A tensor to be sent is not contiguous",
        message=r"Tensors must be contiguous",
        cause="{where} sends a tensor that is not contiguous in memory, such as a transposed weight.",
        remedy=(
            "before the model is wrapped, run: for p in model.parameters(): p.data = p.data.contiguous(); in your "
            "own calls, use tensor.contiguous()"
        ),
    ),
    FrameRule(
        id="batch-not-divisible",
        title="A batch is not divisible by the number of ranks",
        message=r"(?i:batch[ _]?size[^\n]{0,80}(?:(?:is )?not (?:evenly )?divisible by|must be (?:evenly "
        r")?(?:divisible by|a multiple of))|"
        r"not divisible by (?:the )?(?:number of (?:ranks|gpus|processes|devices|workers)|world.?size|micro batch))",
        cause="{where}: the batch size does not match the number of ranks: {message}",
        remedy=(
            "choose a batch size that is a multiple of the number of ranks (times the micro batch, the accumulation "
            "steps or the number of generations that the message names), or a different number of ranks: -e "
            "nproc_per_node=N"
        ),
    ),
    FrameRule(
        id="sizes-not-divisible",
        title="A model size is not divisible by its parallelism",
        exceptions=("AssertionError", "ValueError"),
        message=r"(?P<size>\d{1,9}) is not divisible by (?P<parts>\d{1,6})\b",
        cause="{where}: a size of the model or batch ({size}) cannot be split into {parts} parts: {message}",
        remedy=(
            "choose a tensor, pipeline or data parallel size that divides the number of attention heads, key-value "
            "heads and layers, the number of experts, the vocabulary size (--make-vocab-size-divisible-by in "
            "Megatron) and the global batch size"
        ),
    ),
    FrameRule(
        id="output-of-graph-overwritten",
        title="A CUDA graph overwrote a tensor",
        message=r"accessing tensor output of CUDAGraphs that has been overwritten",
        cause="{where} reads a tensor that a CUDA graph from torch.compile overwrote in the next step.",
        remedy=(
            "call torch.compiler.cudagraph_mark_step_begin() before each forward pass, or call .clone() on "
            'tensors that are kept; alternatively, call torch.compile without mode="reduce-overhead", which uses '
            "no CUDA graphs"
        ),
    ),
    FrameRule(
        id="compiler-gave-up",
        title="torch.compile cannot trace the model",
        message=r"torch\._dynamo\.exc\.(?:Unsupported|InternalTorchDynamoError|TorchRuntimeError|UserError|RecompileLimitExceeded|"
        r"FailOnRecompileLimitHit|BackendCompilerFailed)|torch\._inductor\.exc\.",
        cause="torch.compile cannot compile the code at {where}: {message}",
        remedy=(
            'first launch with -e \'{{"launch_environment": {{"TORCH_COMPILE_DISABLE": "1"}}}}\' to run without '
            "compilation; then exclude the function with @torch.compiler.disable, leave fullgraph=True out, or "
            "upgrade torch"
        ),
        over=("compile-failed",),
        certain=False,
    ),
    FrameRule(
        id="checkpoint-tensors-shared",
        title="Safetensors does not save shared weights",
        message=r"Some tensors share memory, this will lead to duplicate|The weights trying to be saved contained "
        r"shared tensors",
        cause="{where} saves a model with tied weights as safetensors, which stores each tensor once.",
        remedy=(
            "use save_pretrained(..., safe_serialization=False) (save_safetensors=False for the Trainer), or "
            "safetensors.torch.save_model(model, path); keep the weights tied in the configuration "
            "(tie_word_embeddings=True)"
        ),
    ),
    FrameRule(
        id="monitored-metric-missing",
        title="A metric that a callback monitors is not logged",
        message=r"could not find the monitored key in the returned metrics|conditioned on metric `?[\w/]{1,60}`? which "
        r"is not available|"
        r"The `?metric_for_best_model`? training argument is set to",
        cause="{where}: {message}",
        remedy=(
            "log the metric under this name on all ranks (self.log(NAME, value, sync_dist=True) in "
            "validation_step; for the Trainer, a compute_metrics function that returns it), or set monitor or "
            "metric_for_best_model to a name that is logged"
        ),
    ),
    FrameRule(
        id="argument-missing-in-argv",
        title="The script got fewer arguments than it reads",
        exceptions=("IndexError",),
        source=r"sys\.argv\[",
        cause="{where} reads a command-line argument that was not given.",
        remedy=(
            "pass the argument in launch_args: -e \"launch_args='ARGUMENT ...'\"; launchers may add their own "
            "arguments, "
            "which shifts positions, so use argparse"
        ),
    ),
    FrameRule(
        id="visible-devices-short",
        title="CUDA_VISIBLE_DEVICES has fewer entries than ranks",
        exceptions=("IndexError", "KeyError"),
        source=r"CUDA_VISIBLE_DEVICES[^\n]{0,60}\[|(?:gpu_ids|devices|gpus)\[[^\]\n]{0,30}local_rank",
        cause="{where} takes this rank's GPU from a list that has fewer entries than the node has ranks.",
        remedy=(
            "start as many ranks as there are GPUs listed (leave nproc_per_node out), or use "
            "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) instead of the list"
        ),
    ),
    FrameRule(
        id="list-instead-of-tensor",
        title="A list or dictionary is used as a tensor",
        exceptions=("AttributeError",),
        message=r"'(?P<kind>list|tuple|dict|str|int|float)' object has no attribute "
        r"'(?P<name>to|cuda|shape|size|device|dtype|"
        r"backward|item|detach|float|view|dim)'",
        operation=True,
        cause=(
            "{where} got a {kind} where it expects a tensor (.{name}): the dataset or collate function returns "
            "lists, the model returns a tuple or dictionary, or a value was already converted to another type."
        ),
        remedy="print type(...) of that value: move the elements of a batch one by one ([x.to(device) for x in "
        "batch]), "
        "return tensors from the collate function, and take the tensor out of the output (outputs[0], outputs.loss)",
        certain=False,
    ),
    FrameRule(
        id="values-to-unpack",
        title="A call returns a different number of values than expected",
        exceptions=("ValueError",),
        message=r"too many values to unpack \(expected (?P<count>\d{1,3})|not enough values to unpack \(expected "
        r"(?P<least>\d{1,3})",
        raised_by="script",
        operation=True,
        cause=(
            "{where} expects a different number of values than it got ({message}): the dataset, loader or model "
            "returns different values than this code was written for, or a function is from a different version "
            "of its package."
        ),
        remedy=(
            "print the value on the right side of that line (its type and length), and change the names on the left; "
            "if the function is from a package, install the version that the project requires"
        ),
        certain=False,
    ),
    FrameRule(
        id="batch-empty",
        title="A batch has no samples",
        exceptions=("IndexError",),
        source=r"elem = batch\[0\]",
        cause=(
            "A batch has no samples left ({where}): the dataset or collate function dropped all of them, because "
            "they could not be read or do not meet a condition."
        ),
        remedy=(
            "let __getitem__ return another sample in place of a bad one, so that no batch becomes empty; print "
            "why samples are dropped (and their paths on this node)"
        ),
    ),
    FrameRule(
        id="prefetch-without-workers",
        title="A DataLoader rejects its prefetch_factor",
        message=r"'>' not supported between instances of 'NoneType' and 'int'|prefetch_factor option could only be",
        source=r"prefetch_factor|raise ValueError\('prefetch",
        cause=(
            "{where} passes a prefetch_factor that this version of torch does not accept: None requires torch 2, and "
            "a number requires num_workers of at least 1."
        ),
        remedy="leave prefetch_factor out if num_workers is 0, or set num_workers=2; or install torch>=2",
    ),
    FrameRule(
        id="copies-differ",
        title="The ranks' copies of a tensor differ",
        exceptions=("AssertionError",),
        message=r"AssertionError: ?(?P<name>[\w.]{0,200})",
        source=r"nan_to_num\(tensor\) == nan_to_num\(other\)|check_ddp_consistency",
        cause=(
            "The ranks have different values for {name}, which the script requires to be equal ({where}): it was "
            "initialized with a different seed on each rank, or is a buffer that is not sent to the other ranks."
        ),
        remedy="broadcast parameters and buffers from rank 0 after the model is built: for tensor in "
        "module.state_dict().values(): torch.distributed.broadcast(tensor, 0); or add the name to ignore_regex if it "
        "may differ",
    ),
    FrameRule(
        id="asserted-sizes",
        title="An assertion on sizes failed",
        exceptions=("AssertionError",),
        source=r"\bassert\b[^\n]{0,160}(?:\.size\(|\.shape\b|\blen\()[^\n]{0,160}(?:==|!=|<=|>=|%)",
        raised_by="script",
        cause=(
            "{where} requires the shapes of output, labels or lists to match, but they differ: there is a "
            "different number of classes or channels, an option of the model does not fit the data, or a batch "
            "is smaller on this rank."
        ),
        remedy=(
            "print both sides of that condition on each rank; set the number of classes or channels to the data's, "
            "and use drop_last=True if only the last batch differs"
        ),
        certain=False,
    ),
    FrameRule(
        id="lightning-starts-itself",
        title="Lightning starts processes on a node other than the first",
        exceptions=("AssertionError",),
        packages=("pytorch_lightning", "lightning"),
        source=r"assert self\.global_rank == 0",
        cause=(
            "This version of Lightning cannot start its processes on nodes other than the first, because of a "
            "bug in 1.2.8 and nearby versions."
        ),
        remedy="upgrade pytorch-lightning, or start one process per GPU with torchrun (muster's default launcher)",
    ),
    FrameRule(
        id="prepare-without-loader",
        title="accelerate cannot determine the batch size for DeepSpeed",
        message=r"requires you to pass at least one of training or evaluation dataloaders",
        cause=(
            "{where} does not pass a DataLoader to accelerator.prepare, although accelerate takes the batch size for "
            "DeepSpeed from it."
        ),
        remedy=(
            "prepare everything in one call: model, optimizer, loader = accelerator.prepare(model, optimizer, "
            "loader); or, before it, set "
            "AcceleratorState().deepspeed_plugin.deepspeed_config['train_micro_batch_size_per_gpu'] = 1"
        ),
    ),
    FrameRule(
        id="models-in-one-accelerator",
        title="With DeepSpeed, accelerate prepares only one model",
        message=r"You can't use same `Accelerator\(\)` instance with multiple models",
        cause="{where} prepares several models with one Accelerator, which accelerate does not support with DeepSpeed.",
        remedy=(
            "prepare only the model that is trained, and move the others yourself (vae.to(accelerator.device)); "
            "or train without DeepSpeed (DDP or FSDP); accelerate 1.1 and later accepts several "
            "DeepSpeedPlugins, one for each Accelerator"
        ),
    ),
    FrameRule(
        id="accelerate-state-missing",
        title="accelerate is used before it is initialized",
        message=r"You must initialize the accelerate state|properly initialize your accelerator via",
        cause="{where} uses accelerate (its logger, tracker or state) before the Accelerator exists.",
        remedy=(
            "call accelerator = Accelerator() (or PartialState()) first, before you use get_logger(...).info or "
            "trackers that accelerate provides"
        ),
    ),
    FrameRule(
        id="sharded-types-differ",
        title="Weights in one sharded layer have different types",
        message=r"output tensor must have the same type as input tensor|expects uniform original parameter dtype|"
        r"Expects? all parameters? to have the same dtype",
        cause=(
            "{where}: the weights that FSDP or ZeRO gathers together have different types: some are fp32 and others "
            "bf16 or fp16, for example because of adapters (LoRA), norms in fp32, or a model that was cast after it "
            "was sharded."
        ),
        remedy=(
            "before the model is wrapped, cast all of it to one type with model.to(torch.bfloat16) (including "
            "the adapters), or load it with torch_dtype=torch.bfloat16 and do not call .half() later; wrap "
            "layers of a different type separately"
        ),
    ),
    FrameRule(
        id="gathered-size-wrong",
        title="Gathered tensors do not match the number of ranks",
        message=r"output tensor size must be equal to world_size times input tensor size|(?:input|output) tensor size "
        r"must be "
        r"equal to (?:input|output) tensor size times",
        cause=(
            "{where}: a gather across all ranks got tensors whose sizes do not match the number of ranks: the "
            "state of a sharded model was changed, or was loaded for a different number of ranks or different "
            "wrapping, or the versions of torch, accelerate and peft are incompatible."
        ),
        remedy="save with SHARDED_STATE_DICT (fsdp_state_dict_type) and the same wrapping for all modules, and upgrade "
        "torch, accelerate, transformers and peft together",
        certain=False,
    ),
    FrameRule(
        id="sampler-rank-invalid",
        title="A sampler gets a rank that does not exist",
        message=r"Invalid rank (?P<rank>\d{1,7}), rank should be in the interval \[0, (?P<last>\d{1,7})\]",
        cause=(
            "{where} passes rank {rank} to a sampler that was told about ranks 0 to {last} only: the number of "
            "replicas is that of one node (or of the GPUs that torch sees), but the rank is that of the whole "
            "job."
        ),
        remedy=(
            "leave both out, so that the sampler gets them from torch.distributed: DistributedSampler(dataset); "
            "or pass num_replicas=dist.get_world_size(), rank=dist.get_rank()"
        ),
    ),
    FrameRule(
        id="generations-do-not-divide",
        title="A batch does not consist of whole groups of generations",
        message=r"shape '\[-1, (?P<count>\d{1,6})\]' is invalid for input of size (?P<size>\d{1,9})",
        source=r"num_generations|group_size|\bn_samples",
        cause=(
            "{where} puts {size} samples into groups of {count}: the global batch size is not a multiple of the "
            "number of generations per prompt, or the batch became smaller (auto_find_batch_size after memory "
            "ran out, or a last batch)."
        ),
        remedy=(
            "make per_device_train_batch_size times the number of ranks a multiple of num_generations, and set "
            "auto_find_batch_size=False and drop_last=True"
        ),
    ),
    FrameRule(
        id="configuration-entry-missing",
        title="The configuration does not have an entry that the script reads",
        exceptions=("KeyError",),
        message=r"KeyError: (?P<name>['\"][\w./-]{1,100}['\"])",
        source=r"\b(?:cfg|config|conf|opts?|args|params|hparams|settings|options)(?:\.\w{1,40})?\[",
        raised_by="script",
        operation=True,
        cause=(
            "{where} reads {name} from the configuration, which does not have it: this job reads a different "
            "file, or a file from a different version of the project than the code."
        ),
        remedy=(
            "add {name} to the configuration file, or pass the file that belongs to this code (launch_args); check "
            "that the same file is on that node (ansible-playbook site.yml --tags code)"
        ),
    ),
    FrameRule(
        id="argument-not-defined",
        title="The script reads an argument that its parser does not define",
        exceptions=("AttributeError", "ConfigAttributeError"),
        message=r"'(?:Namespace|EasyDict|Munch|DotMap|AttrDict|Config\w{0,20}|\w{1,30}Arguments|\w{1,30}Config)' "
        r"object has no "
        r"attribute '(?P<name>\w{1,80})'",
        raised_by="script",
        cause=(
            "{where} reads {name}, which the arguments or the configuration of this job do not have: the parser "
            "does not define it, or the code and its configuration are from different versions."
        ),
        remedy=(
            "define the argument (parser.add_argument('--{name}')), or copy the same version of code and "
            "configuration to all nodes (ansible-playbook site.yml --tags code); for local_rank, use "
            "int(os.environ['LOCAL_RANK'])"
        ),
    ),
    FrameRule(
        id="text-instead-of-number",
        title="A setting is text where a number is needed",
        exceptions=("TypeError",),
        message=r"(?:'str' and '(?:int|float)'|'(?:int|float)' and 'str'|must be real number, not str|can't multiply "
        r"sequence by "
        r"non-int of type 'float')",
        cause=(
            "{where} calculates with text because a setting was read without conversion: an argument without "
            "type=int or type=float, an environment variable, or a number such as 1e-4 in YAML, which YAML reads "
            "as text (1.0e-4 is a number)."
        ),
        remedy=(
            "write 1.0e-4 or 0.0001 in YAML, use type=float in add_argument, or put float(...) around an environment "
            "variable"
        ),
    ),
    FrameRule(
        id="fft-in-half",
        title="An FFT in fp16 has a size that is not a power of two",
        message=r"cuFFT only supports dimensions whose sizes are powers of two when computing in half precision",
        cause="{where} computes an FFT in fp16, which cuFFT supports only for sizes that are powers of two.",
        remedy=(
            "compute it in fp32 (with torch.autocast('cuda', enabled=False): torch.fft.rfft(x.float())), or pad to a "
            "power of two"
        ),
    ),
    FrameRule(
        id="parameter-outside-zero",
        title="A parameter was created after the model was sharded",
        exceptions=("AttributeError", "KeyError"),
        message=r"'(?:Parameter|Tensor)' object has no attribute 'ds_\w{1,30}'|KeyError: 'ds_\w{1,30}'",
        packages=("deepspeed",),
        cause=(
            "{where}: DeepSpeed (ZeRO 3) encounters a parameter that it does not know about: it was created or "
            "replaced after the model was sharded (a resized embedding, an adapter, a new head), or outside "
            "zero.Init."
        ),
        remedy="change the model (resize_token_embeddings, get_peft_model) before deepspeed.initialize or the Trainer, "
        "or within deepspeed.zero.GatheredParameters(...); upgrade deepspeed and transformers together",
    ),
    FrameRule(
        id="zero-weight-still-used",
        title="ZeRO 3 tries to release a weight that is in use",
        message=r"'status': 'AVAILABLE'|ds_active_sub_modules",
        source=r"assert not param\.ds_active_sub_modules",
        cause=(
            "{where}: ZeRO 3 tries to re-shard a weight that a module is still using: gathered weights are "
            "changed or used during a forward or backward pass, or between the two."
        ),
        remedy="use deepspeed.zero.GatheredParameters only outside the forward and backward passes, and not for "
        "weights of a forward pass whose backward pass is still to come; upgrade deepspeed",
    ),
    FrameRule(
        id="ignored-labels-decoded",
        title="Padding labels are decoded as tokens",
        exceptions=("OverflowError", "TypeError", "IndexError", "ValueError"),
        message=r"out of range integral type conversion attempted|can't convert negative int to unsigned|piece id is "
        r"out of range",
        source=r"decode\(",
        cause="{where} decodes numbers that are not tokens: -100, which labels and predictions are padded with.",
        remedy="replace them first: ids = np.where(ids != -100, ids, tokenizer.pad_token_id)",
    ),
    FrameRule(
        id="tensor-not-serializable",
        title="A tensor or array is written as JSON",
        exceptions=("TypeError",),
        message=r"Object of type (?P<kind>Tensor|ndarray|float32|float16|float64|int64|int32|bool_|PosixPath|"
        r"\w{1,20}Config) is not JSON "
        r"serializable",
        cause="{where} writes a {kind} as JSON, which supports only plain numbers, strings and lists.",
        remedy="convert it: value.item() for one number, value.tolist() for several, str(path) for a path",
    ),
    FrameRule(
        id="no-display",
        title="A plot is drawn without a display",
        message=r"no display name and no \$DISPLAY|could not connect to display|Cannot load backend 'TkAgg'|no "
        r"\$DISPLAY environment",
        cause="{where} opens a window, but the node has no display.",
        remedy=(
            'launch with -e \'{{"launch_environment": {{"MPLBACKEND": "Agg"}}}}\' (for Qt, set '
            "QT_QPA_PLATFORM=offscreen), and use plt.savefig instead of plt.show"
        ),
    ),
)

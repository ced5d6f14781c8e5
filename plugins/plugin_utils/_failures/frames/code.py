# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for mistakes in a script, its model and its data; the last rules explain whatever no other rule matches."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.rule import FrameRule
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.tracebacks import BLOCK

TOPIC = "The script and its libraries"
WRAPPERS = r"'(?P<wrapper>DistributedDataParallel|DataParallel)' object has no attribute '(?P<name>\w{1,80})'"
SHAPES = (
    r"mat1 and mat2 shapes cannot be multiplied|size of tensor a \(|Sizes of tensors must match|is invalid for input "
    r"of size|"
    r"must match the (?:existing )?size|[Ee]xpected input batch_size|must be the same as input size|to have \d{1,6} "
    r"channels|"
    r"mat\d must be a matrix|Expected (?:\d|\w{1,20})D|[Ee]xpected \d{1,2}-?[dD]|shape mismatch|size mismatch|"
    r"batch1 to be|expected size for first two dimensions|not broadcastable|inconsistent tensor size|Dimension out "
    r"of range|"
    r"Given groups=|[Mm]ismatch in shape|do(?:es)? not match the broadcast shape|different number of dimensions|"
    r"The expanded size of the tensor|einsum\(\)|selected index k out of range|number of dimensions|split_with_sizes"
)
FRAMEWORKS = (
    "deepspeed", "accelerate", "lightning", "pytorch_lightning", "lightning_fabric", "transformers", "trl", "peft",
    "megatron", "colossalai", "composer", "llmfoundry", "torchtune", "torchtitan", "bitsandbytes", "vllm", "ray",
    "mmengine", "mmcv", "detectron2", "fairseq", "timm", "diffusers", "datasets", "tokenizers", "nemo", "horovod",
    "optimum", "xformers", "flash_attn", "unsloth", "axolotl", "llamafactory", "swift", "monai", "torch_geometric",
    "dgl",
    "torchmetrics", "sentence_transformers", "evaluate", "hydra", "omegaconf", "jsonargparse", "pydantic",
)  # fmt: skip
RULES: tuple[FrameRule, ...] = (
    FrameRule(
        id="attribute-of-wrapped-model",
        title="An attribute of the model is read from its wrapper",
        exceptions=("AttributeError",),
        message=WRAPPERS,
        cause="{where} reads {name} from the model after it was wrapped: {wrapper} passes on calls to forward, but not "
        "the model's own attributes and methods.",
        remedy="read it from the model itself: model.module.{name} (torch.compile: model._orig_mod.{name}), or "
        "accelerator.unwrap_model(model); call methods that need gradients through forward",
    ),
    FrameRule(
        id="device-index-of-node",
        title="The global rank is used as a GPU number",
        exceptions=("IndexError", "AssertionError"),
        message=r"list index out of range|Invalid device id|tuple index out of range",
        source=r"_streams\[|_get_stream\(|(?:gpus?|gpu_ids|device_ids|devices)\[\w{0,30}rank",
        cause="{where} selects a GPU by a number that the node does not have: the rank of the whole job (RANK), which "
        "exceeds the number of GPUs on all nodes but the first, instead of the rank on the node (LOCAL_RANK).",
        remedy="use int(os.environ['LOCAL_RANK']) for torch.cuda.set_device, device_ids and .to(device), or "
        "rank % torch.cuda.device_count()",
        certain=False,
    ),
    FrameRule(
        id="checkpoint-sharded",
        title="A checkpoint contains only part of the tensors",
        message=r"Trying to resize storage that is not resizable",
        source=r"_rebuild_tensor|torch\.load\(|load_from_checkpoint|load_state_dict|\bset_\(",
        cause=(
            "{where} loads a checkpoint whose tensors are incomplete: it was saved by one rank of a sharded model "
            "(FSDP, ZeRO) without gathering the weights, or is damaged."
        ),
        remedy=(
            "save the full state dict (FULL_STATE_DICT, consolidate, zero_to_fp32.py), or load the checkpoint as a "
            "distributed checkpoint with the same number of ranks"
        ),
        certain=False,
        over=("samples-not-alike",),
    ),
    FrameRule(
        id="checkpoint-entry-missing",
        title="The script reads an entry that the checkpoint does not have",
        exceptions=("KeyError",),
        message=r"KeyError: ?\n?\s{0,4}(?P<name>[^\n]{1,160})",
        source=r"(?i:load_state_dict|checkpoint|\bckpt|state_dict|resume)",
        operation=True,
        cause=(
            "{where} reads {name} from a checkpoint that does not have it: the checkpoint contains only weights or "
            "other parts, or it was saved under another name or by a different version, script or set of trainable "
            "parameters."
        ),
        remedy=(
            "run print(torch.load(path, map_location='cpu').keys()) to see what it contains; resume without the "
            "missing part (weights only), or from a complete checkpoint of the same script"
        ),
        certain=False,
    ),
    FrameRule(
        id="batch-of-one",
        title="Batch normalization got a batch of one sample",
        message=r"Expected more than 1 value per channel when training",
        cause="{where}: a batch normalization layer got a single sample: the batch per rank is 1, or the last batch of "
        "a rank has only one sample.",
        remedy=(
            "use DataLoader(drop_last=True), or a larger batch per rank, since the global batch is divided by "
            "the number of ranks; SyncBatchNorm counts the samples of all ranks"
        ),
    ),
    FrameRule(
        id="target-out-of-range",
        title="A label is not one of the model's classes",
        message=r"Target -?\d{1,12} is out of bounds",
        cause=(
            "{where}: a label in the data is negative or not smaller than the model's number of classes ({message})."
        ),
        remedy="set the model's number of classes to the data's, map labels to 0 ... N-1, and use ignore_index for "
        "padding",
    ),
    FrameRule(
        id="shapes-differ",
        title="Tensors have incompatible shapes",
        exceptions=("RuntimeError", "ValueError", "IndexError", "AssertionError"),
        message=SHAPES,
        operation=True,
        cause=(
            "{where} combines tensors with incompatible shapes: {message}. The sizes of the data do not match "
            "the configuration of the model, or a batch (often a rank's last one) is smaller."
        ),
        remedy=(
            "print the shapes before that line, and compare them with the model's configuration (hidden size, number "
            "of classes, channels, sequence length); use drop_last=True if the last batch is smaller; remove cached "
            "features from an earlier configuration"
        ),
    ),
    FrameRule(
        id="module-attribute-missing",
        title="The script uses a name that a module does not have",
        exceptions=("AttributeError",),
        message=r"module '(?P<module>[\w.]{1,100})' has no attribute '(?P<name>\w{1,80})'",
        cause=(
            "{where} uses {module}.{name}, which the installed version of {module} does not have: the name is "
            "misspelled, the code was written for a different version, or a file in the project has the same name as "
            "the package."
        ),
        remedy=(
            "install the version that the project requires (ansible-playbook site.yml --tags python_env), and the "
            "same one on all nodes; run python -c 'import {module}; print({module}.__file__)' to see which one is "
            "used, and pip show with the package's name to see its version"
        ),
    ),
    FrameRule(
        id="value-is-none",
        title="A value is None",
        exceptions=("AttributeError", "TypeError"),
        message=r"'?NoneType'? object (?:has no attribute|is not (?:subscriptable|iterable|callable)|cannot be)|"
        r"object of type 'NoneType' has no len|"
        r"(?:argument of type|unsupported operand type\(s\)[^\n]{1,80}) '?NoneType",
        operation=True,
        cause=(
            "{where} uses a value that is None: {message}. A function or option returned nothing, a file did not "
            "contain the entry, or only rank 0 has the value because it is set inside `if rank == 0`."
        ),
        remedy=(
            "print the value before that line on each rank; set the option that it comes from, or create the value "
            "on all ranks (torch.distributed.broadcast_object_list sends it from rank 0)"
        ),
        certain=False,
    ),
    FrameRule(
        id="raised-by-script",
        title="The script raised the error itself",
        raised_by="script",
        source=rf"\A\s{{0,9}}{BLOCK}(?:raise\b|sys\.exit\(|exit\(|quit\()",
        fallback=True,
        cause="The script itself raised this error: {message} ({where}).",
        remedy=(
            "look at the lines above that line, which show the condition that the script checks; change the "
            "option, file or data that the message names"
        ),
    ),
    FrameRule(
        id="packages-differ",
        title="A package calls another one with arguments that it does not accept",
        exceptions=("TypeError",),
        message=r"unexpected keyword argument|required (?:positional|keyword-only) argument|positional arguments? but|"
        r"multiple values for (?:keyword )?argument",
        two_packages=True,
        fallback=True,
        cause=(
            "The versions of {caller} and {callee} are incompatible: {caller} passes an argument that the installed "
            "{callee} does not accept ({message}, at {inner})."
        ),
        remedy=(
            "upgrade both together; or add {callee}==VERSION to the job's requirements, with the version of "
            "{callee} that was current when this {caller} was released (its requirements list that version; run "
            "pip show {caller} {callee} to see them), then run ansible-playbook site.yml --tags python_env"
        ),
    ),
    FrameRule(
        id="signature-differs",
        title="A function is called with arguments that it does not accept",
        exceptions=("TypeError",),
        message=r"unexpected keyword argument|required (?:positional|keyword-only) argument|positional arguments? but|"
        r"multiple values for (?:keyword )?argument",
        fallback=True,
        cause=(
            "{where}: {message}. The call does not match the function: it was written for a different version of the "
            "package or of the project's code."
        ),
        remedy=(
            "install the versions that the project requires (ansible-playbook site.yml --tags python_env), and copy "
            "the same code to all nodes (ansible-playbook site.yml --tags code); or change the call"
        ),
    ),
    FrameRule(
        id="rank-not-started",
        title="A rank cannot be started with these objects",
        message=r"(?i:can't pickle|cannot pickle|could not pickle|pickling)",
        source=r"\bmp\.spawn\(|\bmultiprocessing\.spawn\(|mp_spawn_kwargs",
        operation=True,
        cause=(
            "{where} starts its ranks with spawn (Lightning: ddp_spawn), which pickles the model and everything it "
            "refers to, and a part of it cannot be pickled: {message}."
        ),
        remedy=(
            'start each rank as its own process: use Trainer(strategy="ddp") for Lightning, or torchrun (muster\'s '
            "launcher) instead of mp.spawn in your own code. Otherwise define the function or class that the message "
            "names at the top level of a module"
        ),
        over=("worker-not-picklable",),
    ),
    FrameRule(
        id="worker-not-started",
        title="A process cannot be started with these objects",
        message=r"(?i:can't pickle|cannot pickle|could not pickle|pickling)",
        operation=True,
        cause=(
            "{where} passes an object that cannot be pickled to another process: {message}. Lambdas, local functions "
            "and classes, locks, open files and generators cannot be pickled."
        ),
        remedy=(
            "define functions and classes at the top level of a module; open files and connections inside the "
            "worker; or set num_workers=0 to avoid pickling"
        ),
        over=("worker-not-picklable",),
    ),
    FrameRule(
        id="recursion",
        title="A function calls itself endlessly",
        exceptions=("RecursionError",),
        operation=True,
        cause=(
            "{where}: a function calls itself endlessly; often this is an attribute lookup (__getattr__) of a "
            "class that is not initialized yet, for example after unpickling in a worker."
        ),
        remedy="look at the functions that alternate in the traceback; a class with __getattr__ must not read its own "
        "missing attributes",
    ),
    FrameRule(
        id="interrupted",
        title="A person or program interrupted the process",
        exceptions=("KeyboardInterrupt",),
        operation=True,
        cause=(
            "The process received SIGINT: somebody pressed Ctrl-C, or a scheduler or script sent the signal. The "
            "process was at {where}."
        ),
        remedy="launch again from the last checkpoint; if nobody pressed Ctrl-C, look in the scheduler's log",
    ),
    FrameRule(
        id="own-attribute-missing",
        title="A package's own object was not set up on this rank",
        exceptions=("AttributeError",),
        raised_by="package",
        message=r"'(?P<owner>\w{1,80})' object has no attribute '(?P<name>\w{1,80})'",
        source=r"\bself\.(?P<used>\w{1,80})\b[^\n]{0,400}\Z",
        equal=("name", "used"),
        cause=(
            "{package}, called at {where}, uses an attribute of its own object before it is set: {owner}.{name}. "
            "Such objects are often set up on rank 0 only and used on all ranks; otherwise this is a bug in this "
            "version."
        ),
        remedy=(
            "upgrade {package}; or use {owner} only on rank 0 (if rank == 0: ...), or disable the option that "
            "enables it"
        ),
        certain=False,
    ),
    FrameRule(
        id="attribute-misspelled",
        title="The script uses an attribute that does not exist, but a similar one does",
        exceptions=("AttributeError",),
        raised_by="script",
        message=r"'(?P<owner>[\w.]{1,100})' (?:object )?has no attribute '(?P<name>\w{1,80})'\. Did you mean: "
        r"'(?P<similar>\w{1,80})'\?",
        fallback=True,
        over=("torch-name-missing",),
        cause="{where} uses {name}, which {owner} does not have (did you mean {similar}?).",
        remedy=(
            "correct the name ({similar}); or, if {owner} is your own class, create {name} in its __init__. If "
            "{owner} belongs to a package, see in its documentation which versions have {name}"
        ),
    ),
    FrameRule(
        id="model-attribute-missing",
        title="The script uses an attribute that a model does not have",
        exceptions=("AttributeError",),
        of_module=True,
        message=r"'(?P<owner>\w{1,80})' object has no attribute '(?P<name>\w{1,80})'",
        fallback=True,
        cause="{where} uses {name}, which {owner} does not have.",
        remedy=(
            "correct the name; or, if {owner} is your own class, create {name} in its __init__, on all ranks (if "
            "{name} is a @property there, what is missing is an attribute that it reads). If {owner} belongs to a "
            "package, see in its documentation which versions have {name}"
        ),
    ),
    FrameRule(
        id="torch-attribute-unknown",
        title="The script uses a name that torch does not have",
        exceptions=("AttributeError",),
        raised_by="script",
        message=r"(?<!initialized )module '(?P<owner>(?:torch|torchvision|triton)(?:\.[\w.]{1,60})?)' has no attribute "
        r"'(?P<name>\w{1,80})'",
        fallback=True,
        over=("torch-name-missing",),
        cause=(
            "{where} uses {owner}.{name}, which the installed version does not have: the name is misspelled, or "
            "belongs to an older or newer version."
        ),
        remedy=(
            "correct the name; or run pip show torch, see in torch's documentation which versions have {name}, and "
            "install one of them on all nodes: ansible-playbook site.yml --tags python_env,pytorch -e "
            "pytorch_version=VERSION"
        ),
    ),
    FrameRule(
        id="packages-do-not-fit",
        title="Two packages are incompatible",
        exceptions=("AttributeError", "NameError", "ImportError"),
        raised_by="package",
        fallback=True,
        cause=(
            "{package}, called at {where}, uses a name that does not exist: {message}. Usually another package is "
            "newer or older than this version of {package} expects; in rare cases the package got an argument of the "
            "wrong type."
        ),
        remedy=(
            "install compatible versions: upgrade {package}, or pin the package that lacks the name to the "
            "version from before the last update (ansible-playbook site.yml --tags python_env); use the same "
            "versions on all nodes"
        ),
        certain=False,
    ),
    FrameRule(
        id="attribute-missing",
        title="An object does not have an attribute that the script uses",
        exceptions=("AttributeError",),
        raised_by="script",
        fallback=True,
        cause=(
            "{where} uses an attribute that the object does not have: {message}. The installed version of the "
            "package that defines its class is not the one that the code expects, the value has a different type on "
            "this rank, or the name is misspelled or not set in __init__."
        ),
        remedy=(
            "for a class of your own, correct the name or set it in __init__; otherwise, install the versions that "
            "the project requires (ansible-playbook site.yml --tags python_env), or print the type of the object "
            "before that line"
        ),
        certain=False,
    ),
    FrameRule(
        id="setting-refused",
        title="A framework refuses a setting",
        packages=FRAMEWORKS,
        exceptions=(
            "ValueError",
            "AssertionError",
            "NotImplementedError",
            "MisconfigurationException",
            "ValidationError",
            "ConfigAttributeError",
            "ConfigKeyError",
            "MissingMandatoryValue",
            "DeepSpeedConfigError",
            "ZeRORuntimeException",
            "ConfigCompositionException",
            "InstantiationException",
            "ArgumentError",
        ),
        raised_by="package",
        fallback=True,
        cause="{package} rejects a setting or an argument when {where} calls it: {message}",
        remedy=(
            "change the option that the message names, in the script, its configuration or launch_args; if it worked "
            "before, check whether the version of {package} has changed (ansible-playbook preflight.yml compares the "
            "nodes)"
        ),
    ),
    FrameRule(
        id="path-asserted",
        title="An assertion requires a path that does not exist",
        exceptions=("AssertionError",),
        source=r"\bassert\b[^\n]{0,120}\b(?:exists|isfile|isdir|is_file|is_dir)\(",
        cause="{where} requires a file or directory that does not exist on this node.",
        remedy=(
            "run `ls -ld` on that node for each path in the job's arguments; relative paths start at "
            "launch_working_directory. Data must be on each node (ansible-playbook stage_data.yml copies it) or on a "
            "shared drive"
        ),
    ),
    FrameRule(
        id="asserted-by-script",
        title="An assertion in the script failed",
        exceptions=("AssertionError",),
        raised_by="script",
        fallback=True,
        cause="The script checks a condition at {where} that does not hold: {message}",
        remedy=(
            "look at the condition, which shows what the script expects of its options, data or number of ranks; "
            "change these, or the check"
        ),
    ),
    FrameRule(
        id="asserted-by-package",
        title="An assertion in a package failed",
        exceptions=("AssertionError",),
        raised_by="package",
        fallback=True,
        cause="{package}, called at {where}, checks a condition that does not hold: {message}",
        remedy=(
            "look at the condition in the last lines of the traceback; it concerns the arguments of that call, the "
            "options behind them or the number of ranks"
        ),
    ),
    FrameRule(
        id="error-in-script",
        title="The script's own code failed",
        exceptions=(
            "NameError",
            "SyntaxError",
            "AttributeError",
            "TypeError",
            "LookupError",
            "ArithmeticError",
            "ValueError",
            "UnboundLocalError",
            "ImportError",
            "NotImplementedError",
        ),
        raised_by="script",
        fallback=True,
        cause=(
            "The script's own line {where} failed: {exception}: {message}. The line is wrong, or does not handle "
            "the value that it got on this rank, such as an option, an entry in the data, or something that only "
            "other ranks have."
        ),
        remedy=(
            "print the values that the line uses on this rank; if the code worked elsewhere, copy the same code and "
            "data to all nodes: ansible-playbook site.yml --tags code"
        ),
        certain=False,
    ),
    FrameRule(
        id="package-refused",
        title="A package raised the error",
        raised_by="package",
        exceptions=(
            "ValueError",
            "TypeError",
            "LookupError",
            "AttributeError",
            "NotImplementedError",
            "AssertionError",
        ),
        source=r"(?:^|\n)\s{0,9}raise\b[^\n]{0,500}\Z",
        fallback=True,
        cause="{package} rejects what {where} passes to it: {message}",
        remedy=(
            "change the argument or option that the message names; if the code worked before, check whether the "
            "version of {package} has changed"
        ),
        certain=False,
    ),
    FrameRule(
        id="operation-failed",
        title="An operation in the script's own code failed",
        exceptions=("RuntimeError",),
        raised_by="script",
        source=r"\S",
        fallback=True,
        cause="An operation in the script's own line {where} failed: {message}",
        remedy="print the shapes, types and devices of the tensors in that line on this rank, and compare them with a "
        "rank or run that works",
        certain=False,
    ),
    FrameRule(
        id="script-failed",
        title="The script's own code failed with another error",
        raised_by="script",
        fallback=True,
        cause="The script's own line {where} failed: {exception}: {message}",
        remedy=(
            "print the values that the line uses on this rank, and compare them with a rank or run that works; "
            "search for the message in the documentation of the package whose function the line calls"
        ),
        certain=False,
    ),
    FrameRule(
        id="package-failed",
        title="A package failed",
        raised_by="package",
        fallback=True,
        cause="The error comes from {package}, which {where} calls: {exception}: {message}",
        remedy=(
            "make the change that the message asks for; if it does not say, search for it in the issues of "
            "{package}, compare the package's version with the one that worked, and look at the options and data "
            "that are passed to this call"
        ),
        certain=False,
    ),
)

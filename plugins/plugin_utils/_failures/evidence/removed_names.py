# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules and attributes removed from Python and from packages, with the versions that still have them."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.packages import INSTALL, ApiChange
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule

TOPIC = "Modules and attributes removed in newer releases"
MODULES = (
    ApiChange(
        r"pkg_resources",
        "",
        "setuptools 82 removed it, and new environments do not include setuptools",
        "setuptools<81",
    ),
    ApiChange(
        r"distutils(?:\.\w{1,20})?",
        "",
        "Python 3.12 removed it",
        ("setuptools<81, which includes it, or use Python 3.11"),
    ),
    ApiChange(
        r"imp", "", "Python 3.12 removed it", "a newer version of the package in the traceback, or use Python 3.11"
    ),
    ApiChange(
        r"torch\._six", "", "torch 2.0 removed it", "a newer version of the package in the traceback, or torch<2"
    ),
    ApiChange(
        r"torchvision\.transforms\.functional_tensor",
        "",
        "torchvision 0.17 removed it",
        ("a newer version of the package in the traceback (basicsr, pytorchvideo), or torchvision<0.17 with torch<2.2"),
    ),
    ApiChange(
        r"triton\.ops(?:\.\w{1,40})?", "", "triton 3.2 removed it", "bitsandbytes>=0.45, or torch<2.6 with triton<3.2"
    ),
    ApiChange(
        r"numpy\._core(?:\.\w{1,40})?", "", "only numpy 2, with which the file was written, includes it", "numpy>=2"
    ),
    ApiChange(r"numpy\.distutils", "", "numpy removed it for Python 3.12", "numpy<1.26 with Python 3.11"),
    ApiChange(
        r"transformers\.deepspeed",
        "",
        "newer releases moved it",
        "transformers<4.46, or import from transformers.integrations instead; to install it",
    ),
    ApiChange(
        r"transformers\.modeling_bert|transformers\.tokenization_\w{1,20}|transformers\.modeling_\w{1,30}",
        "",
        "transformers 4 moved it to transformers.models",
        "transformers<4, or newer code",
    ),
    ApiChange(
        r"pytorch_lightning\.(?:metrics|utilities\.distributed|plugins\.training_type\w{0,30}|utilities\.seed)",
        "",
        "newer releases of Lightning moved it",
        "the version of pytorch-lightning that the project's requirements name (1.5 to 1.9), with its torch version",
    ),
    ApiChange(r"torchtext\.legacy(?:\.\w{1,20})?", "", "torchtext 0.12 removed it", "torchtext<0.12, or newer code"),
    ApiChange(
        r"keras\.\w{1,30}(?:\.\w{1,30})?",
        "transformers",
        "Keras 3 moved it",
        "tf-keras, or set USE_TF=0 in launch_environment",
    ),
    ApiChange(r"tensorflow\.contrib", "", "TensorFlow 2 removed it", "TensorFlow 1.15, or newer code"),
    ApiChange(
        r"pydantic\.v1|pydantic_settings",
        "",
        "it belongs to a different version of pydantic",
        "pydantic>=2 and pydantic-settings",
    ),
    ApiChange(r"cv2", "", "OpenCV is not installed", "opencv-python-headless"),
    ApiChange(r"PIL", "", "Pillow is not installed", "pillow"),
    ApiChange(r"sklearn", "", "scikit-learn is not installed", "scikit-learn"),
    ApiChange(r"skimage", "", "scikit-image is not installed", "scikit-image"),
    ApiChange(r"yaml", "", "PyYAML is not installed", "pyyaml"),
    ApiChange(r"google\.protobuf", "", "protobuf is not installed", "protobuf"),
    ApiChange(r"git", "", "GitPython is not installed", "gitpython"),
    ApiChange(r"dotenv", "", "python-dotenv is not installed", "python-dotenv"),
    ApiChange(
        r"(?:amp_C|fused_layer_norm_cuda|apex_C|syncbn|fused_weight_gradient_mlp_cuda|scaled_\w{1,30}_cuda)",
        "",
        "NVIDIA's apex was installed without its compiled extensions",
        "apex from source with --cpp_ext --cuda_ext (not `apex` from PyPI, which is a different package)",
    ),
    ApiChange(
        r"apex(?:\.\w{1,30})?",
        "",
        "NVIDIA's apex is not installed",
        (
            "apex from source (https://github.com/NVIDIA/apex), or turn it off and use torch.cuda.amp and "
            "torch's own AdamW instead"
        ),
    ),
    ApiChange(
        r"(?:flash_attn_2_cuda|flash_attn_cuda|flash_attn\w{0,30})",
        "",
        "flash-attention is not installed for this version of torch",
        'flash-attn (pip install flash-attn --no-build-isolation), or use attn_implementation="sdpa"; to install it',
    ),
)
ATTRIBUTES = (
    ApiChange(
        r"module 'distutils' has no attribute 'version'",
        "",
        "setuptools 60 removed it",
        "torch>=1.11, or setuptools<60",
    ),
    ApiChange(
        r"module 'pkgutil' has no attribute 'ImpImporter'",
        "",
        "Python 3.12 removed it",
        "setuptools>=68 and a newer pip",
    ),
    ApiChange(
        r"module 'collections' has no attribute '\w{1,30}'",
        "",
        "Python 3.10 moved it to collections.abc",
        "a newer version of the package whose file is last in the traceback, or use Python 3.9",
    ),
    ApiChange(
        r"module 'inspect' has no attribute '(?:getargspec|formatargspec)'",
        "",
        "Python 3.11 removed it",
        "a newer version of the package whose file is last in the traceback, or use Python 3.10",
    ),
    ApiChange(
        r"module 'PIL\.Image' has no attribute '(?:ANTIALIAS|LINEAR|CUBIC)'", "", "Pillow 10 removed it", "pillow<10"
    ),
    ApiChange(r"'FreeTypeFont' object has no attribute 'getsize'", "", "Pillow 10 removed it", "pillow<10"),
    ApiChange(
        r"module 'torch' has no attribute '(?:float8_\w{1,20}|uint(?:16|32|64))'",
        "",
        "it needs a newer torch",
        "torch>=2.3 (torch>=2.7 for float8_e8m0fnu)",
    ),
    ApiChange(
        r"module 'torch(?:\.\w{1,20})?' has no attribute '(?:compiler|_dynamo|compile)'",
        "",
        "it needs torch 2",
        "torch>=2.1",
    ),
    ApiChange(r"module 'torch' has no attribute 'get_default_device'", "", "it needs torch 2.3", "torch>=2.3"),
    ApiChange(
        r"module 'torch\.utils\._pytree' has no attribute 'register_pytree_node'",
        "",
        "it needs torch 2.2",
        "torch>=2.2",
    ),
    ApiChange(
        r"module 'torch\.distributed' has no attribute '_(?:all_gather_base|reduce_scatter_base)'",
        "",
        "it needs torch 1.10",
        "torch>=1.10, or an older version of the package in the traceback",
    ),
    ApiChange(
        r"module 'torch\.library' has no attribute '(?:register_fake|custom_op|impl_abstract)'",
        "",
        "it needs a newer torch",
        "torch>=2.4, or the torchvision version that matches torch",
    ),
    ApiChange(
        r"module 'tensorflow' has no attribute 'io'|module 'tensorboard\.compat\.tensorflow_stub[\w.]{0,20}' has no "
        r"attribute",
        "",
        "tensorboard and tensorflow disagree",
        "tensorboard without tensorflow (pip uninstall tensorflow), or newer versions of both",
    ),
    ApiChange(
        r"'(?:\w{0,20}Tokenizer\w{0,10})' object has no attribute 'sp_model'|has no attribute "
        r"'_?(?:special_tokens_map|added_tokens_encoder)'",
        "",
        "since transformers 4.34, the base class's constructor reads the vocabulary, which this tokenizer loads later",
        "transformers<4.34, or newer model code (trust_remote_code)",
    ),
    ApiChange(
        r"'DynamicCache' object has no attribute '(?:seen_tokens|get_max_length|get_usable_length)'",
        "",
        "newer releases of transformers removed it",
        "transformers<4.48, or newer model code (trust_remote_code)",
    ),
    ApiChange(
        r"'AcceleratorState' object has no attribute|'AcceleratorState' object has no attribute 'distributed_type'",
        "",
        (
            "accelerate's state was reset or initialized twice because TrainingArguments or Accelerator() is created "
            "repeatedly"
        ),
        "newer versions of accelerate and transformers, and create each only once in the script; to install them",
    ),
)
WHERE = (
    "module-attribute-missing",
    "torch-name-missing",
    "attribute-missing",
    "attribute-misspelled",
    "torch-attribute-unknown",
    "packages-do-not-fit",
    "error-in-script",
    "package-failed",
    "package-refused",
)


def make_module_rule(change: ApiChange, number: int) -> EvidenceRule:
    """Return the rule for a module that a version does not have."""
    return EvidenceRule(
        id=f"module-changed-{number}",
        entries=("module-missing", "optional-dependency"),
        shows=(
            rf"No module named ['\"](?P<name>{change.name})['\"]",
            *((change.where,) if change.where else ()),
        ),
        cause=f"The module {{name}} cannot be imported: {change.what}.",
        remedy=f"install {change.pins}: {INSTALL}",
        certain=True,
    )


def make_attribute_rule(change: ApiChange, number: int) -> EvidenceRule:
    """Return the rule for an attribute that a version does not have."""
    return EvidenceRule(
        id=f"attribute-changed-{number}",
        entries=WHERE,
        shows=(rf"AttributeError: (?P<name>[^\n]{{0,40}}(?:{change.name}))",),
        cause=f"Two packages have incompatible versions ({{name}}): {change.what}.",
        remedy=f"install {change.pins}: {INSTALL}",
        certain=True,
    )


RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="module-of-project",
        entries=("module-missing",),
        shows=(
            r"No module named ['\"](?P<name>(?:src|utils?|models?|data|dataset|config|configs|lib|tools|modules?|"
            r"trainer|core|common|helpers|"
            r"engine|losses|options|networks?)(?:\.[\w.]{1,80})?)['\"]",
        ),
        cause=(
            "{name} is a module in the project itself, and Python cannot find it: the job starts in a different "
            "directory from the one that its code expects, or the code was not copied to this node."
        ),
        remedy=(
            'launch with -e \'{{"launch_environment": {{"PYTHONPATH": "/path/of/project"}}}}\', or set '
            "launch_working_directory to that directory; to copy the code to all nodes, run ansible-playbook "
            "site.yml --tags code"
        ),
    ),
    EvidenceRule(
        id="flash-attention-missing",
        entries=("module-missing", "optional-dependency"),
        shows=(
            r"package flash_attn seems to be not installed|Flash ?Attention[^\n]{0,80}(?:is not installed|not "
            r"available)",
        ),
        cause="The model is configured to use flash-attention, which is not installed in the job's environment.",
        remedy=(
            'use attn_implementation="sdpa" in from_pretrained, which needs no extra package; or install '
            "flash-attention for this torch version with ansible-playbook site.yml --tags "
            "python_env,pytorch,flash_attention -e flash_attention_enabled=true"
        ),
        certain=True,
    ),
    *(make_module_rule(change, number) for number, change in enumerate(MODULES)),
    EvidenceRule(
        id="module-of-other-python",
        entries=("module-missing",),
        shows=(
            r"No module named ['\"](?P<name>\w{1,80})",
            r"\(exitcode: \d{1,3}\) local_rank: \d{1,5} \(pid: \d{1,9}\) of binary: "
            r"(?P<python>/(?:apps?|usr(?:/local)?/bin|opt/(?:apps?|software|ohpc|cray)|sw|soft(?:ware)?|cvmfs|cm|modules?)"
            r"/[\w./+-]{0,200}python[\d.]{0,6}|/usr(?:/local)?/bin/python[\d.]{0,6})$",
        ),
        cause=(
            "The ranks run in {python}, a system-wide Python, which does not have the package {name}: the "
            "torchrun that was called belongs to that Python, not to the environment in which the packages were "
            "installed."
        ),
        remedy=(
            "activate the environment and run `python -m torch.distributed.run` instead of torchrun, or install "
            "the package there with {python} -m pip install {name}. muster calls the torchrun of its own "
            "environment (leave launch_launcher out); to install the project's requirements in that environment, "
            "run ansible-playbook site.yml --tags python_env"
        ),
        certain=True,
    ),
    *(make_attribute_rule(change, number) for number, change in enumerate(ATTRIBUTES)),
)

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence about package versions: known names and arguments that a version added or removed."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule

TOPIC = "Which releases fit together"
INSTALL = "update the job's requirements (requirements: [...]), then run ansible-playbook site.yml --tags python_env"


@dataclass(frozen=True)
class ApiChange:
    """A change in a package that breaks other packages.

    Attributes:
        name: Expression for the name of the argument or the imported name.
        where: Expression that must also match the error, such as the package or the called class.
        what: What changed, without a full stop.
        pins: Compatible requirements, in pip's format.
    """

    name: str
    where: str
    what: str
    pins: str


ARGUMENTS = (
    ApiChange(
        "(?:dispatch_batches|split_batches|even_batches|use_seedable_sampler)",
        "Accelerator",
        (
            "accelerate 1.0 removed it, and the installed transformers still passes it; or accelerate is too old to "
            "support it"
        ),
        "accelerate==0.34.2 with transformers older than 4.46, or newer versions of both",
    ),
    ApiChange("logging_dir", "Accelerator", "accelerate 0.20 renamed it to project_dir", "accelerate<0.20"),
    ApiChange(
        "num_items_in_batch",
        "compute_loss|training_step",
        (
            "transformers 4.46 passes it to each Trainer.compute_loss, and the project's own compute_loss does not "
            "accept it"
        ),
        "transformers<4.46, or add **kwargs to compute_loss",
    ),
    ApiChange(
        "evaluation_strategy",
        "",
        "transformers 4.46 has only the new name eval_strategy",
        "transformers<4.46, or rename it",
    ),
    ApiChange(
        "tokenizer",
        "Trainer",
        "newer versions of transformers and trl renamed it to processing_class",
        "trl<0.16 and transformers<5, or rename it",
    ),
    ApiChange(
        "(?:dataset_text_field|max_seq_length|packing|dataset_kwargs|max_prompt_length|beta)",
        "Trainer",
        "newer versions of trl accept it in SFTConfig or DPOConfig, not in the trainer",
        "trl<0.13, or move it to the configuration",
    ),
    ApiChange(
        "keep_torch_compile",
        "unwrap_model",
        "the installed transformers needs a newer accelerate version",
        "accelerate>=1.4",
    ),
    ApiChange(
        "_is_hf_initialized",
        "",
        "the installed accelerate is older than the version that transformers expects",
        "the newest versions of accelerate and transformers",
    ),
    ApiChange(
        "proxies",
        "Client",
        "httpx 0.28 removed it",
        ("httpx<0.28, or a newer version of the openai or anthropic package"),
    ),
    ApiChange(
        "(?:forward_prefetch|use_orig_params|limit_all_gathers|sync_module_states)",
        "",
        "it is an argument of FSDP that the installed torch is too old to support",
        "torch>=2.0, or an older transformers (4.26.1)",
    ),
    ApiChange("enable_gqa", "", "it needs torch 2.5", "torch>=2.5"),
    ApiChange("mmap", "load", "torch.load accepts it only in torch 2.1 and later", "torch>=2.1"),
    ApiChange("weights_only", "load", "torch.load accepts it only in torch 1.13 and later", "torch>=1.13"),
    ApiChange("serialized_options", "", "the package was generated for a newer protobuf version", "protobuf>=3.6"),
    ApiChange(
        "use_auth_token", "", "newer releases renamed it to token", "datasets<3 and huggingface_hub<1, or rename it"
    ),
    ApiChange("verbose", "", "torch 2.7 removed it from the learning rate schedulers", "torch<2.7, or leave it out"),
)
IMPORTS = (
    ApiChange(
        "(?:log|_get_socket_with_port)",
        r"torch\.distributed\.elastic",
        "torch 2.4 removed it, and the installed DeepSpeed still imports it",
        "deepspeed>=0.14.4, or torch<2.4",
    ),
    ApiChange(
        "cached_download",
        "huggingface_hub",
        "huggingface_hub 0.26 removed it",
        "huggingface_hub<0.26, or newer diffusers and sentence-transformers",
    ),
    ApiChange(
        "shard_checkpoint", "transformers", "transformers 4.47 removed it", "transformers<4.47, or newer autoawq"
    ),
    ApiChange(
        "(?:is_flash_attn_available|_expand_mask|_make_causal_mask)",
        "transformers",
        "newer releases of transformers removed it",
        "the version of transformers that the project's requirements name (4.34 or older)",
    ),
    ApiChange("LlamaFlashAttention2", "transformers", "transformers 4.48 removed it", "transformers<4.48"),
    ApiChange(
        "top_k_top_p_filtering", "transformers", "transformers 4.39 removed it", "transformers<4.39, or a newer trl"
    ),
    ApiChange(
        "EncoderDecoderCache",
        "transformers",
        "the installed peft needs a newer transformers version",
        "transformers>=4.45, or peft<0.14",
    ),
    ApiChange(
        "(?:clear_device_cache|is_npu_available|is_mlu_available|is_xpu_available)",
        "accelerate",
        "the installed peft or transformers needs a newer accelerate version",
        "the newest accelerate",
    ),
    ApiChange(
        "AttrsDescriptor",
        "triton",
        "the installed triton is newer than this torch, which includes its own triton version",
        (
            "triton==3.2.0 for torch 2.6, triton==3.1.0 for torch 2.5; or do not list triton, so that torch chooses "
            "its version"
        ),
    ),
    ApiChange("packaging", "pkg_resources", "setuptools 70 removed it", "setuptools<70, or newer deepspeed and torch"),
    ApiChange("DEFAULT_CIPHERS", "urllib3", "urllib3 2 removed it", "urllib3<2, or newer botocore and requests"),
    ApiChange(
        "(?:Iterable|Mapping|MutableMapping|Sequence|Callable)",
        r"collections['\"]",
        "Python 3.10 removed it from collections (it is in collections.abc)",
        "a newer version of the package whose file is last in the traceback",
    ),
    ApiChange("comm", r"deepspeed['\"]", "DeepSpeed is too old for the installed accelerate", "deepspeed>=0.10"),
)


def make_argument_rule(change: ApiChange, number: int) -> EvidenceRule:
    """Return the rule for an argument that a version does not accept."""
    return EvidenceRule(
        id=f"argument-changed-{number}",
        entries=("signature-differs", "packages-differ", "argument-unknown"),
        shows=(
            rf"(?:unexpected keyword argument|multiple values for (?:keyword )?argument) "
            rf"['\"]?(?P<name>{change.name})\b",
            *((change.where,) if change.where else ()),
        ),
        cause=f"Two packages have incompatible versions: {{name}} is rejected, since {change.what}.",
        remedy=f"install {change.pins}: {INSTALL}",
        certain=True,
    )


def make_import_rule(change: ApiChange, number: int) -> EvidenceRule:
    """Return the rule for importing a name that a version does not have."""
    return EvidenceRule(
        id=f"name-changed-{number}",
        entries=("import-name-missing",),
        shows=(rf"cannot import name ['\"](?P<name>{change.name})['\"] from ['\"][^'\"\n]{{0,80}}{change.where}",),
        cause=f"Two packages have incompatible versions: {{name}} cannot be imported, since {change.what}.",
        remedy=f"install {change.pins}: {INSTALL}",
        certain=True,
    )


RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="protobuf-libraries-mixed",
        entries=("aborted",),
        shows=(
            r"This program (?:was compiled against|requires) version (?P<wanted>[\d.]{1,12}) of the Protocol Buffer "
            r"runtime library[^\n]{0,60}installed version \(?(?P<found>[\d.]{1,12}\d)",
        ),
        cause=(
            "Two packages in this process include their own protobuf libraries (often TensorFlow and another "
            "package): one was compiled against protobuf {wanted}, but {found} was loaded first, and the library "
            "aborts the process."
        ),
        remedy=(
            "install protobuf {wanted}, or remove the package that training does not need (often tensorflow, since "
            "tensorboard works without it); install all packages from pip or all from conda, without mixing them"
        ),
    ),
    EvidenceRule(
        id="attention-not-in-build",
        entries=("xformers-no-operator",),
        shows=(r"(?P<reason>[^\n]{1,100}not supported in this build[^\n]{0,60})",),
        cause="The installed version of xformers has no kernel for this attention head size on this GPU: {reason}.",
        remedy=(
            "upgrade xformers to the version for your torch (pip install --upgrade xformers also changes torch; "
            "add --no-deps to keep it), or train without xformers: omit "
            'enable_xformers_memory_efficient_attention(), or use attn_implementation="sdpa" (transformers)'
        ),
        certain=True,
    ),
    EvidenceRule(
        id="attention-not-built",
        entries=("xformers-no-operator",),
        shows=(r"xFormers wasn't build with CUDA support|operator wasn't built",),
        cause=(
            "The xformers kernels are not usable: xformers was built for a different torch or CUDA version from the "
            "installed one."
        ),
        remedy=(
            "install the xformers version for your torch and CUDA versions: pip install --force-reinstall --no-deps "
            "--no-cache-dir xformers==RELEASE --index-url https://download.pytorch.org/whl/cu124. To see which torch "
            "version it was built for, run `python -m xformers.info` on the node"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="backend-passed-twice",
        entries=("signature-differs", "packages-differ"),
        shows=(r"init_process_group\(\) got multiple values for (?:keyword )?argument 'backend'", r"/accelerate/"),
        cause=(
            "The versions of transformers and accelerate are incompatible: transformers passes a backend that "
            "accelerate sets itself."
        ),
        remedy=f"upgrade accelerate, or install transformers==4.28.1: {INSTALL}",
        certain=True,
    ),
    *(make_argument_rule(change, number) for number, change in enumerate(ARGUMENTS)),
    *(make_import_rule(change, number) for number, change in enumerate(IMPORTS)),
    EvidenceRule(
        id="triton-of-other-torch",
        entries=("import-name-missing", "torch-name-missing"),
        shows=(
            r"(?:cannot import name '(?P<name>\w{1,80})' from '(?P<module>triton[\w.]{0,60})'|"
            r"module '(?P<owner>triton[\w.]{0,60})' has no attribute '(?P<attribute>\w{1,80})')",
            r"/(?:site|dist)-packages/torch/_(?:inductor|dynamo)/",
        ),
        cause=(
            "The installed triton does not match this torch, whose compiler uses a name that triton does not have "
            "({name}{attribute}): each version of torch needs the triton version that is installed with it."
        ),
        remedy=(
            "reinstall torch with its triton by running ansible-playbook site.yml --tags python_env,pytorch, and do "
            "not list triton in the job's requirements"
        ),
        certain=True,
    ),
)

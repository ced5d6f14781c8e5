# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ranks do apart from training, based on their output or the function that they were in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ansible_collections.muster.training.plugins.module_utils._run.error_text import PROGRESS
from ansible_collections.muster.training.plugins.plugin_utils._failures.explanation import clean_line

TRAINING = "training"
FINISHED = "finished"
MAX_LINES = 8  # number of a rank's last lines that are searched for what it was doing
MAX_LINE = 400
MAX_OUTPUT = 160  # number of characters of a rank's last output to show
# A progress bar without a name: the preceding line shows what is progressing.
BAR = re.compile(r"^\W{0,10}\d{1,3}%\|[^a-zA-Z]{0,120}\d{1,12}/\d{1,12}\b|^[\W\d]{0,40}$")
# Lines about the timeout itself, which do not show what the job was doing.
REPORT = re.compile(
    r"ProcessGroup|\[c10d\]|\bNCCL\b|[Ww]atchdog|terminate called|what\(\)|frame #|C\+\+ frames|Traceback|"
    r"^\s{1,12}(?:File |raise )|Error\b|torch\.distributed|elastic|SIGTERM|SIGABRT|exitcode|^[-=* ]{5,}$"
)
STEP = re.compile(
    r"(?<!eval_)(?<!val_)(?<!valid_)\b(?:loss|lr|grad_norm)\b['\"]?\s{0,3}[=:]?\s{0,3}-?\d", re.IGNORECASE
)
# Only a training step reports the gradient norm.
GRADIENTS = re.compile(r"\bgrad(?:ient)?_norm\b['\"]?\s{0,3}[=:]?\s{0,3}\d")
END = re.compile(
    r"\b(?:finished|completed|done|exiting|stopped|exhausted)\b(?! (?:consolidat|load|sav|download|tokeni|in \d))|"
    r"\bend of training\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Activity:
    """Work that a rank is doing while other ranks may have to wait for it.

    Attributes:
        name: What the rank was doing: "evaluating".
        output: Matches the output of a rank that does it.
        function: Matches the name of the function or file that such a rank is in.
        reason: Why others wait for it in vain: a sentence.
        remedy: What to change, without a full stop.
    """

    name: str
    output: str
    function: str
    reason: str
    remedy: str


LIMIT = (
    "raise the timeout with init_process_group(timeout=timedelta(hours=3)), with ddp_timeout=10800 for the "
    "Trainer, or with InitProcessGroupKwargs(timeout=...) for accelerate"
)
EVALUATING = Activity(
    "evaluating or generating",
    r"(?i:\bmAP@|\bmAP50|\bmIoU\b|\bevaluat|validat|\beval\b|\beval_|\[eval|\bvalid\b|\bval\b|\btesting\b|\btest:|predict|generat|inference|"
    r"\bsampling\b|rollout)",
    r"(?i:eval|valid|\btest|predict|generate|inference|sample_images|rollout)",
    (
        "The other ranks are not taking part, or have finished their part and are waiting at the next collective; "
        "the wait is longer than their timeout."
    ),
    (
        "have every rank evaluate its own part of the data, with the same number of batches on each; or evaluate "
        f"less, or {LIMIT}. If only rank 0 evaluates, it must not call the wrapped model (DDP, FSDP, ZeRO), "
        "because its forward pass waits for all ranks. With DDP, call model.module instead; a longer timeout "
        "does not help in that case"
    ),
)
SAVING_SHARDED = Activity(
    "saving a sharded model",
    r"(?i:\bsav(?:e|ing)\b[^\n;]{0,80}(?:FSDP|sharded|zero|deepspeed|full state)|"
    r"(?:FSDP|sharded|zero|deepspeed)[^\n;]{0,60}\bsav(?:e|ing)\b)",
    r"(?i:save_fsdp|full_state_dict|summon_full_params|zero_gather|_zero3_consolidated|gather_full)",
    (
        "Saving a sharded model (FSDP, ZeRO 3) requires all ranks to take part, but most likely only this rank "
        "is calling the save function, inside `if rank == 0` or `if accelerator.is_main_process`; or saving "
        "merely takes longer than the other ranks' timeout."
    ),
    "call save_state, save_checkpoint or state_dict() on all ranks, outside any branch for the main process; a longer "
    f"timeout does not help in that case. Only if the file is still growing, {LIMIT}",
)
SAVING = Activity(
    "saving a checkpoint",
    r"(?i:\bsav(?:e|ed|ing)\b|writing (?:the )?(?:model|checkpoint|weights|shard)|\bcheckpoint(?:ing|s)?\b(?! shards)|"
    r"consolidat|state[_ ]dict|\bupload|pushing|\bmerging|files written|\bexport)",
    r"(?i:save|checkpoint|consolidat|upload|torch_save|serializ|\bwrite|push_to_hub|export)",
    (
        "This rank is writing the model alone, which takes longer than the timeout of the ranks waiting at a "
        "barrier; or only this rank is calling a function that all ranks must call."
    ),
    (
        f"{LIMIT}; or save less data, or save faster by using sharded or asynchronous checkpoints "
        "(torch.distributed.checkpoint) or a local disk. With FSDP and ZeRO 3, call the save function on all "
        "ranks, not inside `if rank == 0`"
    ),
)
DOWNLOADING = Activity(
    "downloading",
    r"(?i:\bdownload|\bfetching \d|\bcloning|\bpulling\b|"
    r"\.(?:safetensors|bin|parquet|zip|tar(?:\.gz)?):\s{0,9}\d{1,3}%)",
    r"(?i:download|http_get|snapshot|urlretrieve|fetch_url|hf_hub)",
    (
        "This rank is downloading while the others are already waiting, and the download takes longer than their "
        "timeout."
    ),
    (
        "download the model before the job: run hf download NAME on each node, or run "
        f"ansible-playbook stage_data.yml; then set HF_HUB_OFFLINE=1 in launch_environment. Otherwise, {LIMIT}"
    ),
)
COMPILING = Activity(
    "compiling",
    r"(?i:\bcompil|building extension|\bninja\b|\bnvcc\b|loading extension module|autotun|cuda ?graph|torch_extensions|"
    r"tracing graph|inductor|warm(?:ing)?[- ]?up)",
    r"(?i:compil|build_ext|jit_load|cpp_extension|inductor|triton|autotun|cuda_graph)",
    (
        "This rank is compiling code while the others wait; if an earlier job left a lock file in the cache, a "
        "rank waits forever."
    ),
    (
        "run rm -rf ~/.cache/torch_extensions on each node to remove leftover locks; then compile once before "
        'the job, or give each node a cache on its own disk with -e \'{{"launch_environment": '
        '{{"TORCH_EXTENSIONS_DIR": "/tmp/extensions", "TRITON_CACHE_DIR": "/tmp/triton"}}}}\'. Otherwise, '
        f"{LIMIT}"
    ),
)
LOADING_MODEL = Activity(
    "loading a model or checkpoint",
    r"(?i:loading (?:checkpoint|model|weights|pipeline|the model|state|pretrained|optimizer)|checkpoint shards|"
    r"\bresum(?:e|ing)\b|\brestor(?:e|ing)\b|instantiat|initializ(?:e|ing) (?:the "
    r")?(?:model|weights)|\bload(?:ed|ing)? "
    r"(?:from|ckpt))",
    r"(?i:from_pretrained|load_checkpoint|load_state|load_model|torch_load|restore|resume|load_sharded)",
    (
        "This rank was still reading the model, from a slow disk or on behalf of all other ranks, when the other "
        "ranks' timeout expired."
    ),
    f"copy the model to a local disk on each node (ansible-playbook stage_data.yml), or {LIMIT}",
)
PREPARING = Activity(
    "preparing data",
    r"(?i:tokeni[sz]|pre-?process|\bprepar|\bscann|\bmap(?:ping)?\b(?!@)|\bload|\bbuild|extract|unzip|\bindex|\breading|"
    r"\bconvert|\bcach|\bpack|\bfilter|\bgroup|\bshuffl|\bcopy|\bcollect|\bcount|\bcomput)",
    r"(?i:tokeni|preprocess|\bmap\b|_map_single|build_\w{0,20}(?:index|indices|dataset|data|cache)|\bload\b|read_|extract|"
    r"collate|__getitem__|__next__|dataset|dataloader)",
    "This rank is preparing data alone while the others wait, which takes longer than their timeout.",
    (
        "prepare the data once before the job and load the result; or have the other ranks wait at a barrier until "
        f"the data is ready, and {LIMIT}"
    ),
)
SERVING = Activity(
    "waiting for requests",
    r"(?i:waiting for (?:new )?(?:requests?|work|jobs?|tasks?|messages?|rollouts?|prompts)|\blistening on\b|"
    r"uvicorn running|application startup complete|\bidle\b)",
    r"(?i:serve_forever|run_busy_loop|event_loop|uvicorn|recv_multipart|zmq)",
    (
        "This rank serves other ranks, as an inference or rollout worker does, and never calls the collective "
        "that they are waiting in: that collective's process group also contains ranks that do other work."
    ),
    (
        "create that collective's process group from only the ranks that take part, with "
        "torch.distributed.new_group(ranks=[...]); or turn off the option that makes all ranks take part (for "
        "Megatron's checkpoints, set fully_parallel_save=False). A longer timeout does not help"
    ),
)
TRACKING = Activity(
    "connecting to a tracker",
    r"(?i:\bwandb: |weights & biases|\bmlflow\b|\bcomet(?:_ml)?\b|\bneptune\b|\bswanlab\b|\bclearml\b)",
    r"(?i:wandb|mlflow|comet_ml|neptune|swanlab|clearml|init_trackers)",
    (
        "The tracker (Weights & Biases, MLflow, ...) is not responding to this rank, and meanwhile the other "
        "ranks are waiting for this one."
    ),
    (
        'if the node has no Internet access, launch with -e \'{{"launch_environment": {{"WANDB_MODE": '
        '"offline"}}}}\' and upload the run later with wandb sync DIRECTORY; otherwise, run `curl -I '
        "https://api.wandb.ai` on that node to test the connection, and call wandb.init only on rank 0, followed "
        "by a barrier for all ranks"
    ),
)
ACTIVITIES = (SERVING, TRACKING, EVALUATING, SAVING_SHARDED, DOWNLOADING, COMPILING, LOADING_MODEL, SAVING, PREPARING)


def activity_of(lines: Iterable[str]) -> tuple[str, str]:
    """Return a rank's activity, and the output that shows it, or ("", "") if the activity is unknown.

    TRAINING and FINISHED are activities, too. lines: the end of the rank's log.
    """
    shown = [clean_line(line.rstrip("\r").rpartition("\r")[2])[:MAX_LINE].strip() for line in lines]
    shown = [line for line in shown if line and not REPORT.search(line)][-MAX_LINES:]
    for line in reversed(shown):
        if BAR.match(line):
            continue
        if GRADIENTS.search(line):
            return TRAINING, describe_output(line, line)
        for activity in ACTIVITIES:
            if re.search(activity.output, line) and not (activity is not EVALUATING and STEP.search(line)):
                return activity.name, describe_output(line, shown[-1])
        if END.search(line):
            return FINISHED, describe_output(line, line)
        if STEP.search(line) or PROGRESS.search(line):
            return TRAINING, describe_output(line, line)
    return "", ""


def describe_output(line: str, last: str) -> str:
    """Return the output that shows an activity and, if a progress bar follows, how far it got, without semicolons."""
    progress = "" if line == last else f", {last}"[:60]
    return f"{line[: MAX_OUTPUT - len(progress)]}{progress}".replace(";", ",").strip()

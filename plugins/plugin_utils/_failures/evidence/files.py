# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence about files: races between ranks, caches that only one node has, and truncated files."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import RunFacts

TOPIC = "Files that several ranks use"
MISSING = ("rename-raced", "file-missing", "file-not-on-node", "removal-raced", "temporary-file-missing")
UNREAD = (
    "unreadable-image",
    "unreadable-archive",
    "unreadable-file",
    "unreadable-table",
    "unreadable-model",
    "package-failed",
    "package-refused",
    "raised-by-script",
    "setting-refused",
    "checkpoint-cut-off",
    "tar-cut-off",
    "text-file-broken",
    "json-error",
)
RANK_0_FIRST = (
    "let one rank do it while the others wait: `if rank == 0: download()`, then torch.distributed.barrier(), "
    "after which all ranks read it. On a shared drive, use one rank of the whole job; otherwise, use local rank "
    "0 of each node"
)
DOWNLOAD_RACED = (
    "Several ranks download or unpack the same file into one directory at the same time: one checks or reads it "
    "while another is still writing it, so it looks corrupted (a race). Otherwise, an earlier download was "
    "interrupted."
)
DOWNLOAD_ONCE = (
    f"remove the file, and {RANK_0_FIRST}; use download=False on the other ranks; or download it once before the job"
)


def is_not_rank_0(_groups: Mapping[str, str], facts: RunFacts) -> bool:
    """Return whether the failed rank is known not to be rank 0."""
    return bool(facts.rank)


RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="directory-exists-anyway",
        entries=("directory-exists", "checkpoint-directory-race"),
        shows=(
            r"(?:mkdir|makedirs)\([^\n]{0,200}exist_ok ?= ?True[^\n]{0,80}\n(?:[^\n]{0,300}\n){0,6}?[^\n]{0,40}"
            r"FileExistsError: \[Errno 17\] File exists: '(?P<path>[^'\n]{1,200})'",
        ),
        cause=(
            "{path} exists but is not a directory for this rank, so exist_ok=True does not help: most likely another "
            "node has just created it on a shared drive, and this node does not see it as a directory yet. Otherwise "
            "a file or a broken link has that name."
        ),
        remedy=(
            "create it only on rank 0 of the whole job (RANK 0, not LOCAL_RANK 0), with a barrier for the "
            "others; or give each node its own directory. To see whether it is a file or a broken link, run `ls "
            "-ld` on that path on the node"
        ),
    ),
    EvidenceRule(
        id="file-created-by-two-nodes",
        entries=("directory-exists",),
        shows=(
            r"\bopen\([^\n]{0,200}['\"][aw]\+?b?['\"][^\n]{0,80}\n(?:[^\n]{0,300}\n){0,4}?[^\n]{0,40}"
            r"FileExistsError: \[Errno 17\] File exists: '(?P<path>[^'\n]{1,200})'",
        ),
        cause=(
            "Several ranks create the file {path} at the same moment on a shared drive: usually the first rank "
            "of each node (LOCAL_RANK 0) writes it, instead of only the job's first rank."
        ),
        remedy=(
            "write it only on rank 0 of the whole job (RANK 0, not LOCAL_RANK 0); if the code belongs to a package, "
            "a newer version may do so; or give each node its own output directory"
        ),
    ),
    EvidenceRule(
        id="file-not-created",
        entries=("package-failed", "package-refused"),
        shows=(r"RuntimeError: File (?P<path>[^\n]{1,200}) cannot be opened\b", r"PyTorchFileWriter|, in save$"),
        cause="torch.save cannot create the file {path}: the disk or the quota is full, its directory does not "
        "exist, or "
        "this user may not write there. torch does not say which.",
        remedy=(
            "on that node, run `df -h DIRECTORY` and `df -i DIRECTORY` (is it full?), `ls -ld DIRECTORY` (is it "
            "missing, or owned by another user?) and `quota -s`; free space or save elsewhere, and call "
            "os.makedirs(directory, exist_ok=True) first"
        ),
    ),
    EvidenceRule(
        id="path-of-rank-0-unseen",
        entries=("raised-by-script", "package-failed", "package-refused", "setting-refused", "path-asserted"),
        shows=(
            r"(?:Error|Exception): [^\n]{0,120}\b(?:[Nn]ot found|does not exist|[Nn]o such (?:file|directory))[: ]{1,3}"
            r"['\"]?(?P<path>/[^\s'\"]{1,300})",
            r"\b(?:dist_checkpointing|save_checkpoint|save_to_checkpoint|in save\w{0,40}$)",
        ),
        cause=(
            "This rank does not see {path}, which another rank has just created for the checkpoint: it is on a "
            "local disk of that node, or on a shared drive (NFS) that caches directory listings for a few "
            "seconds."
        ),
        remedy=(
            "save to a drive that all nodes share (ansible-playbook site.yml --tags data mounts one): on such a "
            "drive, `ls -ld` shows the directory on each node. If it is shared over NFS, mount it with "
            "lookupcache=none or actimeo=0 on all nodes; checkpoint formats in which each rank creates its own "
            "files (torch_dist instead of zarr) do not need this"
        ),
        condition=is_not_rank_0,
    ),
    EvidenceRule(
        id="triton-cache-raced",
        entries=(*MISSING, "checkpoint-directory-race", "directory-not-empty"),
        shows=(r"(?P<path>/[^'\"\n]{0,200}(?:\.triton/|/triton/cache|torchinductor_|\.tmp\.pid_)[^'\"\n]{0,200})",),
        cause=(
            "Several ranks or nodes compile the same kernel into one cache directory at the same time, and one "
            "renames or removes a file that another is still writing (a race), usually in a shared home "
            "directory: {path}."
        ),
        remedy=(
            'give each node a cache on its own disk with -e \'{{"launch_environment": {{"TRITON_CACHE_DIR": '
            '"/tmp/triton", "TORCHINDUCTOR_CACHE_DIR": "/tmp/inductor"}}}}\'. If it still happens, use one cache '
            "per rank, set in the script before the first import of torch: os.environ['TRITON_CACHE_DIR'] += "
            "os.environ['LOCAL_RANK']. Newer versions of Triton (3.0) tolerate a shared cache"
        ),
    ),
    EvidenceRule(
        id="extension-raced",
        entries=(*MISSING, "extension-not-built", "extension-build-failed"),
        shows=(
            r"torch_extensions/",
            r"cannot open shared object file|file too short|invalid ELF header|No such file or directory|FileExists",
        ),
        unless=r"error: |FAILED: |nvcc fatal|fatal error",
        cause=(
            "Several ranks or nodes build the same extension in ~/.cache/torch_extensions at the same time, usually "
            "in a shared home directory, and one loads a file that another has not finished writing."
        ),
        remedy=(
            "remove the leftover files with rm -rf ~/.cache/torch_extensions; then give each node a cache on its own "
            'disk with -e \'{{"launch_environment": {{"TORCH_EXTENSIONS_DIR": "/tmp/torch_extensions"}}}}\', or '
            "build the extension once before the job (DS_BUILD_OPS=1 pip install --force-reinstall --no-deps "
            "--no-cache-dir --no-build-isolation deepspeed)"
        ),
    ),
    EvidenceRule(
        id="download-cut-off",
        entries=(*UNREAD, "service-unreachable"),
        shows=(
            r"Consistency check failed: file should be of size (?P<size>\d{1,20}) but has size (?P<actual>\d{1,20})",
        ),
        cause=(
            "A download is incomplete ({actual} of {size} bytes): the connection broke, the disk is full, or several "
            "ranks are downloading the same file into one cache at the same time."
        ),
        remedy=(
            "remove the incomplete file from HF_HOME, and check `df -h` there. Then download the file once on each "
            "node before the job (hf download NAME), and set HF_HUB_OFFLINE=1 in launch_environment"
        ),
    ),
    EvidenceRule(
        id="database-of-workers",
        entries=("locks-unavailable",),
        shows=(r"database is locked", r"in DataLoader worker process \d|/utils/data/_utils/worker\.py"),
        cause=(
            "Several DataLoader workers use one SQLite file at the same time, and at least one of them writes to it: "
            "some packages write a temporary table even when they only read."
        ),
        remedy=(
            "set num_workers=1 or 0; or read without writing: open the file in each worker with "
            "sqlite3.connect('file:FILE?mode=ro', uri=True, timeout=60); upgrade the package in the frames above "
            "(for torch_geometric's OnDiskDataset, to 2.5). On a network drive, copy the file to each node's disk"
        ),
    ),
    EvidenceRule(
        id="path-of-two",
        entries=("program-missing", "file-missing", "file-not-on-node", "path-is-directory"),
        shows=(r"No such file or directory: '(?P<path>(?!\w{1,12}://)[^'\n:]{0,200}:[^'\n:]{0,200}/[^'\n:]{1,200})'",),
        cause=(
            "The path {path} contains a colon: a variable that must name one directory, such as CUDA_HOME, was "
            "extended as if it were a list (export CUDA_HOME=$CUDA_HOME:/usr/local/cuda)."
        ),
        remedy=(
            "set it to one directory, without a colon: use export CUDA_HOME=/usr/local/cuda in ~/.bashrc, the "
            "module, the image or launch_environment, whichever sets it"
        ),
    ),
    EvidenceRule(
        id="compiler-of-cuda-missing",
        entries=("program-missing",),
        shows=(r"No such file or directory: '(?P<path>[^'\n]{0,200}\bnvcc)'",),
        cause=(
            "The CUDA toolkit is not installed on this node, or CUDA_HOME points to another directory: a package "
            "is compiling GPU code and cannot find the compiler ({path}). The driver and torch do not include "
            "the compiler."
        ),
        remedy=(
            "install the CUDA toolkit version that torch was built with on each node and set CUDA_HOME in "
            "launch_environment; in a conda environment, run conda install -c nvidia cuda-toolkit=12.4. Or do "
            "without the op (use torch.optim.AdamW instead of FusedAdam)"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="lock-not-supported",
        entries=("io-error", "stale-file", "package-failed"),
        shows=(r"\bfcntl\.(?:flock|lockf)\(", r"OSError: \[Errno (?:5|22|37|38|95|524)\]"),
        cause=(
            "A package locks a file (flock), but the drive that holds that directory does not support locks: it is a "
            "network drive without locks, such as Lustre mounted without flock, NFS without lockd, or a mounted "
            "bucket."
        ),
        remedy=(
            'put caches on each node\'s own disk with -e \'{{"launch_environment": {{"HF_HOME": "/tmp/me/hf", '
            '"TRITON_CACHE_DIR": "/tmp/me/triton"}}}}\'; or have the drive mounted with locks (Lustre: -o flock)'
        ),
    ),
    EvidenceRule(
        id="lock-held",
        entries=UNREAD,
        shows=(r"file lock '(?P<path>[^'\n]{1,300})' could not be acquired",),
        cause=(
            "This rank waited in vain for the lock {path}: another rank or job is still downloading or preparing "
            "the data that it protects, or a process that has ended left the lock on a network drive."
        ),
        remedy=(
            "do that work once before the job (run hf download NAME on each node, then set "
            "HF_HUB_OFFLINE=1 in launch_environment); if no job is using the lock file anymore, remove it"
        ),
    ),
    EvidenceRule(
        id="download-raced",
        entries=(*UNREAD, *MISSING),
        shows=(
            r"(?:File|Dataset) not found or corrupted|BadZipFile|File is not a zip file|hash (?:value )?(?:mismatch|"
            r"does(?:n't| not) match)|invalid hash value|unexpected end of data|CRC check failed|Compressed file ended "
            r"before|Bad CRC-32|Error -3 while decompressing",
            r"[Dd]ownload|[Ee]xtract|urlretrieve|unzip|snapshot|hf_hub|load_state_dict_from_url",
        ),
        cause=DOWNLOAD_RACED,
        remedy=DOWNLOAD_ONCE,
    ),
    EvidenceRule(
        id="download-raced-dataset",
        entries=("dataset-not-downloaded",),
        shows=(r"\w\([^\n]{0,200}\bdownload ?= ?True",),
        cause=DOWNLOAD_RACED,
        remedy=DOWNLOAD_ONCE,
    ),
    EvidenceRule(
        id="index-of-rank-0",
        entries=("file-not-on-node", "file-missing", "dataset-cache-missing"),
        shows=(
            r"'(?P<path>[^'\"\n]{1,300}(?:_indexmap_|doc_idx|sample_idx|shuffle_idx|/index-cache/|/indices/|\.idx\b|"
            r"cache-[0-9a-f]{8,20})[^'\"\n]{0,200})'",
        ),
        cause=(
            "Rank 0 builds the index of the data ({path}) on its own node, and this node does not see it: the "
            "directory is not on a drive that all nodes share."
        ),
        remedy=(
            "put the data, or its cache directory, on a drive that all nodes share (ansible-playbook site.yml --tags "
            "data); let the first rank of each node build the index (use_shared_fs: false in GPT-NeoX, no shared "
            "file system in NeMo, --data-cache-path in Megatron); or copy it to all nodes with ansible-playbook "
            "stage_data.yml"
        ),
    ),
    EvidenceRule(
        id="upload-throttled",
        entries=("s3-slow-down",),
        shows=(
            r"(?:CreateMultipartUpload|UploadPart|PutObject|upload_\w{1,30}|save_checkpoint|CompleteMultipartUpload|"
            r"put_object)",
        ),
        cause=(
            "The job writes too many objects to the bucket at the same time: all ranks upload their parts of a "
            "checkpoint simultaneously, and the service rejects some of the requests."
        ),
        remedy=(
            'let the client wait and retry with -e \'{{"launch_environment": {{"AWS_RETRY_MODE": "adaptive", '
            '"AWS_MAX_ATTEMPTS": "10"}}}}\'; upload from fewer ranks at the same time or upload larger files; or '
            "save to a local disk and upload afterwards. A rank whose upload fails must end all others: let its "
            "exception end the script"
        ),
    ),
    EvidenceRule(
        id="checkpoint-written-by-all",
        entries=("checkpoint-torn", "checkpoint-cut-off"),
        shows=(r"enforce fail at inline_container\.cc[^\n]{0,40}file not found",),
        cause=(
            "The checkpoint is corrupted because several ranks wrote the same file at the same time or the save was "
            "interrupted: its table of contents lists parts that are not in it."
        ),
        remedy=(
            "resume from an earlier checkpoint, and save only on rank 0: `if rank == 0: torch.save(...)`. Save under "
            "a temporary name that is renamed when complete, with a barrier for the others"
        ),
    ),
)

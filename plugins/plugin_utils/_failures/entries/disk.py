# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures involving disks, permissions and open files."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

IN_CACHE = r"'[^'\n]{0,300}(?:/\.?triton[/']|/\.cache[/']|torchinductor_|torch_extensions|/huggingface/)"

TOPIC = "Disks and files"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="io-error",
        title="A disk or network drive is failing",
        example="OSError: [Errno 5] Input/output error",
        texts=(
            r"\[Errno 5\] Input/output error",
            r"Input/output error \(os error 5\)",
            r"fd \d{1,6} failed with Input/output error",
        ),
        cause=(
            "The disk or network drive reports an error while the job is reading or writing: the disk is failing "
            "or full, or the drive's server is not responding."
        ),
        remedy=(
            "check dmesg on that node; save to another disk; for a network drive, check its server and mount the "
            "drive again with ansible-playbook site.yml --tags data"
        ),
        source="pytorch/pytorch#48580",
    ),
    CatalogueEntry(
        id="disk-full",
        title="The disk is full",
        example="OSError: [Errno 28] No space left on device",
        texts=(r"No space left on device",),
        cause="The disk with the checkpoints, logs, cache or /tmp is full on that node.",
        remedy=(
            "run ansible-playbook runs.yml -e keep=5 to remove older runs and what they saved; keep fewer "
            "checkpoints (save_total_limit), or save to a larger disk; set HF_HOME in launch_environment to move the "
            "cache"
        ),
        source="databrickslabs/dolly#139",
        general=True,
    ),
    CatalogueEntry(
        id="disk-quota",
        title="The disk quota is exceeded",
        example="OSError: [Errno 122] Disk quota exceeded",
        texts=(r"Disk quota exceeded",),
        cause="The file system has free space, but not for this user.",
        remedy=(
            "run `quota -s` on the node; remove files, or save elsewhere: set launch_node_directory to move the "
            "runs, and HF_HOME in launch_environment to move the cache"
        ),
        source="open-mmlab/mmdetection#12069",
    ),
    CatalogueEntry(
        id="read-only",
        title="The file system is read-only",
        example="OSError: [Errno 30] Read-only file system",
        texts=(rf"Read-only file system(?!: {IN_CACHE})",),
        cause=(
            "The directory is on a read-only mount, on a container mount with :ro, or on a disk that the kernel "
            "remounted read-only after errors."
        ),
        remedy=(
            "save elsewhere, or set HF_HOME in launch_environment to a writable directory; if a local disk "
            "became read-only, it is failing, so check dmesg"
        ),
        source="XiangLi1999/PrefixTuning#27",
    ),
    CatalogueEntry(
        id="permission-denied",
        title="The job is not allowed to access a file",
        example="PermissionError: [Errno 13] Permission denied: '...'",
        texts=(r"\[Errno 13\] Permission denied",),
        cause=(
            "The file or directory belongs to another user, often root after a job was run in a container or with sudo."
        ),
        remedy=(
            "on that node, run `ls -ld` on the path to see its owner, and sudo chown -R USER PATH to give it to the "
            "job's user; or use another directory; for caches, set HF_HOME, TRITON_CACHE_DIR or XDG_CACHE_HOME in "
            "launch_environment"
        ),
        source="meta-pytorch/tritonbench#247",
        recoverable=True,
        general=True,
    ),
    CatalogueEntry(
        id="too-many-files",
        title="Too many open files",
        example="OSError: [Errno 24] Too many open files",
        texts=(
            r"\[Errno 24\] Too many open files",
            r"received 0 items of ancdata",
            r"RuntimeError: Too many open files",
            r"unable to open shared memory object </torch_[^\n]{1,60}> in read-write mode",
            r"Too many open files \(24\)",
        ),
        cause=(
            "Each tensor that a DataLoader worker passes to the main process uses one file descriptor, and the "
            "limit on open files (ulimit -n) has been reached."
        ),
        remedy=(
            "run ansible-playbook site.yml --tags base_packages to raise the limit; or call "
            "torch.multiprocessing.set_sharing_strategy('file_system') in the script"
        ),
        source="kuleshov-group/caduceus#58",
    ),
    CatalogueEntry(
        id="temporary-file-missing",
        title="A temporary directory belongs to another process",
        example="FileNotFoundError: [Errno 2] No such file or directory: '/tmp/tmp3o00dg6a/checkpoint/states.pt'",
        texts=(r"No such file or directory: '/tmp/tmp[a-z0-9_]{8}(?:/|')", r"can't open file '/tmp/tmp[a-z0-9_]{8}/"),
        cause=(
            "The path is in a temporary directory with a random name, created by one process on one node. Other "
            "ranks have different names, other nodes do not have the directory, or its creator has removed it."
        ),
        remedy=(
            "for files that other ranks read, use a directory with a fixed name on a drive that all nodes share "
            "(ansible-playbook site.yml --tags data), or let each node write its own files; send a path that rank 0 "
            "generates to the other ranks with torch.distributed.broadcast_object_list"
        ),
        source="bccp/nbodykit#253",
        weak=True,
    ),
    CatalogueEntry(
        id="rename-raced",
        title="A file to be renamed no longer exists",
        example="FileNotFoundError: [Errno 2] No such file or directory: '.../tmp-checkpoint-8' -> '.../checkpoint-8'",
        texts=(
            r"No such file or directory: '[^'\n]{1,300}' -> '",
            r"No such file or directory: '[^'\n]{1,300}\.(?:tmp|temp)'",
        ),
        cause=(
            "Several ranks or nodes rename or remove the same temporary file or directory on a shared drive: one "
            "of them did so first, and the others can no longer find it. In rare cases, the directory of the "
            "second path does not exist."
        ),
        remedy=(
            "let one rank of the whole job rename it while the others wait at a barrier, or give each process "
            "its own directory; with the Trainer, upgrade transformers (in version 4.36, each node did the "
            "renaming), and set save_on_each_node only if the nodes share no drive. Libraries that cache files "
            "need RANK, WORLD_SIZE and LOCAL_RANK to decide which rank writes, so start the ranks with torchrun"
        ),
        source="mosaicml/streaming#868",
        weak=True,
    ),
    CatalogueEntry(
        id="directory-exists",
        title="A file or directory already exists",
        example="FileExistsError: [Errno 17] File exists: './log/TwoStageNet'",
        texts=(r"FileExistsError: \[Errno 17\] File exists: ",),
        cause=(
            "Several ranks tried to create it at the same time, and one of them created it after another had "
            "checked for it; or it is left over from an earlier run, but the script requires a new one."
        ),
        remedy=(
            "use os.makedirs(path, exist_ok=True); on a shared drive, call it only on rank 0, and have the "
            "others wait at a barrier. If the path is left over from an earlier run, choose another output "
            "directory or remove it"
        ),
        source="OpenNMT/OpenNMT-py#1495",
        weak=True,
        general=True,
        recoverable=True,
    ),
    CatalogueEntry(
        id="file-missing",
        title="A file is missing",
        example="FileNotFoundError: [Errno 2] No such file or directory: '...'",
        texts=(r"FileNotFoundError: \[Errno 2\]",),
        cause=(
            "Either the path, taken relative to launch_working_directory, is wrong; or the file is only on some "
            "nodes, because without a shared drive the other nodes do not see what one node writes, such as a "
            "cache or a checkpoint; or another rank has not created the file yet, or has removed it."
        ),
        remedy=(
            "use absolute paths for data; run ansible-playbook site.yml --tags code to copy the code to all "
            "nodes, and ansible-playbook stage_data.yml to copy a bucket. Files that the job itself writes and "
            "reads must be on a shared drive (ansible-playbook site.yml --tags data) or be written on each node, "
            "and the other ranks must wait for them at a barrier"
        ),
        source="GANWANSHUI/ES6D#22",
        recoverable=True,
        weak=True,
        general=True,
    ),
    CatalogueEntry(
        id="cross-device-rename",
        title="A file cannot be moved to another disk",
        example="OSError: [Errno 18] Invalid cross-device link: '/tmp/tmpzancmmsh' -> '/mnt/data/file'",
        texts=(r"\[Errno 18\] (?:Invalid )?[Cc]ross-device link",),
        cause=(
            "A program writes a temporary file and renames it, which does not work between two disks or mounts: "
            "/tmp, or the cache, is on a different disk or mount from the destination."
        ),
        remedy=(
            'put the temporary directory on the destination\'s disk with -e \'{"launch_environment": {"TMPDIR": '
            '"/mnt/data/tmp"}}\' (the directory must exist on all nodes), and for downloads also set HF_HOME; in '
            "your own code, use shutil.move instead of os.rename"
        ),
        source="huggingface/huggingface_hub#1439",
    ),
    CatalogueEntry(
        id="cache-not-writable",
        title="A cache directory is not writable",
        example="PermissionError: [Errno 13] Permission denied: '/app/engine/.triton'",
        texts=(rf"(?:Permission denied|Read-only file system): {IN_CACHE}",),
        cause="The cache belongs to another user of the machine, or to root after a job in a container; or "
        "HOME does not exist in the container, or is mounted read-only there.",
        remedy=(
            'give the job its own caches with -e \'{"launch_environment": {"TRITON_CACHE_DIR": "/tmp/me/triton", '
            '"TORCHINDUCTOR_CACHE_DIR": "/tmp/me/inductor", "XDG_CACHE_HOME": "/tmp/me/cache"}}\', and set '
            "HF_HOME to a directory on a data disk; or run sudo chown -R USER DIRECTORY on that node"
        ),
        source="dphnAI/sonar#458",
        recoverable=True,
    ),
    CatalogueEntry(
        id="no-temporary-directory",
        title="There is no directory for temporary files",
        example="FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp', '/var/tmp', "
        "'/usr/tmp', '/home/me']",
        texts=(r"No usable temporary directory found in \[",),
        cause=(
            "Python cannot write to any of the directories listed in the message: their disks are full or read-only, "
            "as in some containers."
        ),
        remedy=(
            "run df -h /tmp on that node to see the free space; remove files there, or use a directory that has "
            'free space and exists on all nodes, with -e \'{"launch_environment": {"TMPDIR": "/data/tmp"}}\'; in '
            "a container, mount a writable /tmp"
        ),
        source="luigifreda/pyslam#184",
    ),
)

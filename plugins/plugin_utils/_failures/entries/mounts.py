# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of mounts."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Mounts and network drives"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="locks-unsupported",
        title="The file system cannot lock files",
        example="NotImplementedError: FileSystem does not appear to support flock; user SoftFileLock instead",
        texts=(
            r"FileSystem does not appear to support flock",
            r'filelock/_unix\.py", line \d{1,5}, in _acquire',
        ),
        cause=(
            "A package locks a file (flock) while it downloads or builds something, but the file system of that "
            "directory does not support locks; examples are Lustre mounted without the flock option and a "
            "mounted bucket."
        ),
        remedy=(
            "put caches and downloads on each node's own disk (set HF_HOME, HF_HUB_CACHE and TRITON_CACHE_DIR in "
            "launch_environment, and do not use a local_dir on that mount); or have Lustre mounted with -o "
            "flock; or upgrade huggingface_hub and filelock (3.24), whose newer versions fall back to lock files"
        ),
        source="tox-dev/filelock#289",
        recoverable=True,
        refines=("mount-limited",),
    ),
    CatalogueEntry(
        id="mount-limited",
        title="A mount does not support a file operation that the job uses",
        example="SafetensorError: Error while serializing: I/O error: Operation not supported (os error 95)",
        texts=(
            r"\(os error (?:38|95|18)\)",
            r"\[Errno 38\] Function not implemented",
            r"\[Errno 95\] Operation not supported",
            r"\[Errno 18\] Invalid cross-device link",
        ),
        cause=(
            "The directory is on a mount that does not support every file operation that a disk does. A mounted "
            "bucket (mount-s3, s3fs), for example, cannot rename, append to or preallocate a file, which "
            "programs do when they save."
        ),
        remedy=(
            "save to a local disk, and copy the file to the bucket afterwards. If the error occurs only with "
            "safetensors 0.8, pin safetensors<0.8 in the requirements"
        ),
        source="safetensors/safetensors#842",
    ),
    CatalogueEntry(
        id="mount-died",
        title="A mount lost its server",
        example="OSError: [Errno 107] Transport endpoint is not connected",
        # the second is the error of a read that was in progress; without a path, it is a network connection's
        texts=(r"Transport endpoint is not connected", r"Software caused connection abort: '/"),
        cause="The program behind the mount (s3fs, mount-s3) exited during the job.",
        remedy=(
            "run ansible-playbook site.yml --tags s3fs,mount_s3,cifs_share to mount it again; see the mount "
            "service's journal on that node for why the program exited"
        ),
        source="rhasspy/piper#311",
    ),
    CatalogueEntry(
        id="stale-file",
        title="A file on a network drive was removed",
        example="OSError: [Errno 116] Stale file handle",
        texts=(r"Stale (?:NFS )?file handle",),
        cause=(
            "Another node removed or replaced a file that this node had open, which can happen with a shared "
            "cache; or the drive's server was restarted."
        ),
        remedy=(
            "keep each node's cache on its own disk (set HF_HOME, TRITON_CACHE_DIR or TORCHINDUCTOR_CACHE_DIR in "
            "launch_environment), and have one rank prepare it before the others continue; remount the drive if "
            "every access fails"
        ),
        source="modelscope/ms-swift#6695",
    ),
    CatalogueEntry(
        id="locks-unavailable",
        title="Files cannot be locked on a network drive",
        example="sqlite3.OperationalError: database is locked",
        texts=(
            r"sqlite3\.OperationalError: database is locked",
            r"\[Errno 37\] No locks available",
            r"\[Errno 16\] Device or resource busy: '[^'\n]{0,200}(?:triton|torchinductor)",
        ),
        cause=(
            "Several ranks are using one database or cache at the same time, or it is on a network drive that does "
            "not support file locks."
        ),
        remedy=(
            "put the file on each node's own disk by setting HF_HOME, TRITON_CACHE_DIR or the program's own cache "
            "directory in launch_environment; let one rank create the file before the others open it"
        ),
        source="facebookresearch/DrQA#69",
        recoverable=True,
    ),
    CatalogueEntry(
        id="hdf5-locked",
        title="An HDF5 file is locked",
        example="OSError: Unable to open file (unable to lock file, errno = 11, error message = 'Resource "
        "temporarily unavailable')",
        texts=(r"unable to lock file, errno = \d{1,3}, error message",),
        cause=(
            "HDF5 locks a file while it is open. Either another rank or job has the file open for writing (errno "
            "11), or the network drive does not support locks (errno 37, 38, 5)."
        ),
        remedy=(
            'open the file read-only on all ranks (h5py.File(path, "r")), on first use in each DataLoader '
            "worker, and let only one rank write to it; to disable locks (only for files that are just read), "
            'launch with -e \'{"launch_environment": {"HDF5_USE_FILE_LOCKING": "FALSE"}}\''
        ),
        source="open-mpi/ompi#6535",
    ),
    CatalogueEntry(
        id="socket-path-too-long",
        title="The path of the temporary directory is too long",
        example="OSError: AF_UNIX path too long",
        texts=(r"AF_UNIX path too long",),
        cause=(
            "DataLoader workers and managers communicate through sockets in the temporary directory, and a socket's "
            "path is limited to about 100 characters. The path in TMPDIR, as set by the scheduler or a workflow "
            "program, is too long."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"TMPDIR": "/tmp"}}\', or use another short directory on '
            "each node's local disk"
        ),
        source="riga/law#184",
    ),
)

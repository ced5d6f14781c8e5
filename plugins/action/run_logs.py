# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module run_logs: fetches a run's logs from a node into the run's record."""

from __future__ import annotations

import base64
import json
import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._files.bounded import MAX_DIRECTORY_DEPTH
from ansible_collections.muster.training.plugins.module_utils._run.internal_files import is_internal
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import conforms
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import PACK_CALL_TIMEOUT
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import call_node
from ansible_collections.muster.training.plugins.plugin_utils._record.free_space import require_free_space
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable

ARGUMENT_SPEC = {
    "run_id": {"type": "str", "required": True},
    "directory": {"type": "path", "required": True},
    "required": {"type": "bool", "default": True},
    "selection": {"type": "str", "choices": ["logs", "measured"], "default": "logs"},
    "runs_directory": {"type": "str", "default": "~/.muster/runs"},
    "user": {"type": "str", "default": ""},
}
MAX_MEASURED = 512 << 20  # bytes; a node's archive is less than half this size
MAX_DEPTH = MAX_DIRECTORY_DEPTH + 8  # directory levels in a name; a node searches no deeper
MAX_FILES = 100_000  # files in one archive; a node with 16 ranks that was restarted 100 times has a few thousand


# The replies to a request for logs, from a node that is no more trusted than its job.
PIECE = {"data": str, "last": bool}
PACKED = {
    **PIECE,
    "size": range(2**60),
    "left_out": {
        "limit": range(2**60),
        "limit_count": range(2**40),
        "files": [{"file": str, "size": range(2**60), "retained": range(2**60)}],
        "count": range(2**40),
    },
}


def decode_piece(node: str, piece: Any) -> bytes:
    """Return the bytes of an archive chunk. Raise AnsibleActionFail if the node sent anything else."""
    try:
        if conforms(piece, PIECE):
            return base64.b64decode(piece["data"], validate=True)
    except ValueError:
        pass
    raise AnsibleActionFail(f"{node} sent an invalid reply instead of its logs")


def unpack(archive: IO[bytes], target: Path, folder: str, limit: int | None = None) -> None:
    """Unpack a node's archive below the target; its files and directories are accessible only to their owner.

    An archive of a few megabytes may hold any number of files of any size, so the free disk space is checked before
    each file.

    Whoever controls the node writes the archive, so links, devices, modes and owners in it are ignored. (tarfile's own
    filter is missing in Python 3.11.0 to 3.11.3, and thus in Debian 12.)

    Args:
        archive: The archive, a .tar.gz.
        target: Directory for the files.
        folder: The directory below the target that all files of this node are in, such as node1.
        limit: Maximum total size of the files in bytes, or None if only the disk space limits it.

    Raises:
        AnsibleActionFail: If a name leads out of the folder, there are too many files, or they are too large.
    """
    with tarfile.open(fileobj=archive, mode="r:gz") as tar:
        size = 0
        for number, member in enumerate(tar, 1):
            size += member.size
            if limit is not None and size > limit:
                raise AnsibleActionFail(
                    f"the node's archive is larger than {limit >> 20} MiB, more than any run's measurements take "
                    f"up: nothing more was unpacked into {target}; check who else can write to the run's "
                    "directory on this node"
                )
            if number > MAX_FILES:
                raise AnsibleActionFail(
                    f"the node's archive has more than {MAX_FILES} files: nothing more was unpacked into {target}; "
                    "check what the job writes to its run's directory on this node"
                )
            name = PurePosixPath(member.name)
            if len(name.parts) > MAX_DEPTH:
                raise AnsibleActionFail(
                    f"the node's archive has a file nested {len(name.parts)} directories deep: nothing more was "
                    f"unpacked into {target}; check what the job writes to its run's directory on this node"
                )
            if name.parts[:1] != (folder,) or ".." in name.parts:
                raise AnsibleActionFail(
                    f"the node's archive contains a file, {ascii(member.name)[:200]}, that would be written "
                    f"outside {target / folder}: nothing more was unpacked; check who else can write to the run's "
                    "directory on this node"
                )
            path = target / name
            if member.isdir():
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            elif member.isreg():
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                require_free_space(path.parent, member.size, f"the logs up to {name}")
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
                content = tar.extractfile(member)
                with os.fdopen(descriptor, "wb") as stream:
                    if content is not None:  # always true for a file
                        shutil.copyfileobj(content, stream)


def node_folder(record: Path, node: str) -> str:
    """Return the directory for a node's files in a record, based on the rank that the run's plan gives the node.

    Raises:
        AnsibleActionFail: If the plan has no such node.
    """
    plan = json.loads((record / "plan.json").read_text(encoding="utf-8"))
    names = [entry["name"] for entry in plan["nodes"]]  # the nodes' names, by node_rank
    if node not in names:
        raise AnsibleActionFail(f"{node} is not a node of the run in {record}")
    return f"node{names.index(node)}"


def describe_left_out(node: str, run_id: str, left_out: Any) -> str:
    """Return a message about the files of a run that a node has left out, or an empty string."""
    files = [file for file in left_out["files"] if file["retained"] == 0]
    if not files:
        return ""
    size = sum(file["size"] for file in files)
    other_count = left_out["count"] - len(left_out["files"]) + len(files) - 1
    suffix = "" if other_count == 0 else " and 1 other" if other_count == 1 else f" and {other_count} others"
    # fetch.yml copies the job's output files, not the logs
    logs = [is_internal(file["file"], {}) for file in files]
    commands = [f"ansible-playbook fetch.yml -e run_id={run_id}"] if not all(logs) else []
    commands += [f"ansible-playbook logs.yml -e run_id={run_id} -e fetch=true"] if any(logs) else []
    return adapt_commands(
        (
            f"{node} did not send {size / 1e6:.0f} MB of run {run_id}: {printable(files[0]['file'])[:200]}{suffix} "
            f"(at most {left_out['limit'] >> 20} MiB in {left_out['limit_count']} files are fetched per node, "
            "smallest first). To fetch all of them: "
        )
        + ", and for the logs: ".join(commands)
    )


class ActionModule(ActionBase):
    """Action plugin. One call to the node packs and returns 8 MiB, and each further call returns another 8 MiB."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Fetch the logs; return the directory that contains them."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if self._task.check_mode:
            return {"changed": True, "directory": args["directory"]}
        try:
            return self.fetch(args, task_vars)
        except (AnsibleError, OSError) as error:
            if args["required"]:
                raise
            node = task_vars["inventory_hostname"]
            message = f"the measurements of run {args['run_id']} on {node} are not in its record: {error}"
            Display().warning(
                adapt_commands(
                    f"{message}; to try again: ansible-playbook logs.yml -e run_id={args['run_id']} -e fetch=true"
                )
            )
            return {"changed": False, "directory": None, "msg": message}

    def fetch(self, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Have the node pack its part of the run, and unpack it here."""
        request = {**args, "node": task_vars["inventory_hostname"]}
        pack = {**request, "operation": "pack"}
        packed = call_node(self, "_run.dispatch", pack, task_vars, PACK_CALL_TIMEOUT)
        if packed.get("size", 0) is not None and not conforms(packed, PACKED):
            raise AnsibleActionFail(f"{request['node']} sent an invalid reply instead of its logs")
        if packed["size"] is None:
            message = f"{request['node']} has no run {args['run_id']} in {args['runs_directory']}: no logs were fetched"
            Display().warning(message)
            return {"changed": False, "directory": None, "msg": message}
        target = Path(args["directory"])
        folder = node_folder(target.parent, request["node"])
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        require_free_space(Path(tempfile.gettempdir()), packed["size"], f"the packed logs of {request['node']}")
        with tempfile.TemporaryFile() as archive:
            chunk = packed
            archive.write(decode_piece(request["node"], chunk))
            while not chunk["last"] and archive.tell() <= packed["size"]:
                chunk = call_node(
                    self, "_run.dispatch", {**request, "operation": "piece", "offset": archive.tell()}, task_vars
                )
                archive.write(decode_piece(request["node"], chunk))
            archive.seek(0)
            try:
                unpack(archive, target, folder, MAX_MEASURED if args["selection"] == "measured" else None)
            except (tarfile.TarError, EOFError, zlib.error) as error:
                raise AnsibleActionFail(
                    f"{request['node']} did not send a complete log archive ({error}): try again, or check who "
                    "else can write to the run directory on this node"
                ) from error
        warning = describe_left_out(request["node"], args["run_id"], packed["left_out"])
        if warning:
            Display().warning(warning)
        return {"changed": True, "directory": str(target)}

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module run_logs: the logs of a run on a node, fetched into the run's record."""

from __future__ import annotations

import base64
import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._on_node import call_node

ARGUMENT_SPEC = {
    "run_id": {"type": "str", "required": True},
    "directory": {"type": "path", "required": True},
    "runs_directory": {"type": "str", "default": "~/.muster/runs"},
    "user": {"type": "str", "default": ""},
}
MOST_FILES = 100_000  # in one archive; a node of 16 ranks that were restarted 100 times has some thousands
KEEP_FREE = 1 << 30  # bytes of a disk here that no logs may take


def require_room(where: Path, size: int, what: str) -> None:
    """Raise AnsibleActionFail where a disk would hold less than KEEP_FREE bytes after so many more."""
    free = shutil.disk_usage(where).free
    if free - size < KEEP_FREE:
        raise AnsibleActionFail(
            f"{what} take {size / 1e9:.1f} GB, and the disk of {where} has {free / 1e9:.1f} GB free, of which "
            f"{KEEP_FREE / 1e9:.1f} GB are kept: make room here, or look at the logs on the node"
        )


def unpack(archive: IO[bytes], target: Path) -> None:
    """Unpack what a node has packed: files and directories below the target, for their owner alone.

    An archive of a few megabytes may hold any number of files of any size, so the room on the disk here is looked at
    before each of them.

    Whoever has the node writes the archive, so nothing else is taken from it: no link, no device, no mode and no owner.
    (tarfile's own filter for that is not in Python 3.11.0 to 3.11.3, one of which is Debian 12's.)
    Raises AnsibleActionFail where a name leads out of the target, and where there are too many or too large files.
    """
    with tarfile.open(fileobj=archive, mode="r:gz") as tar:
        for number, member in enumerate(tar, 1):
            if number > MOST_FILES:
                raise AnsibleActionFail(
                    f"the node's archive has more than {MOST_FILES} files: nothing more was unpacked below {target}; "
                    "see what the job writes into its run's directory on this node"
                )
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts:
                raise AnsibleActionFail(
                    f"the node's archive has a file {ascii(member.name)[:200]}, which would lie outside of {target}: "
                    "nothing more was unpacked; see who else may write to the run's directory on this node"
                )
            path = target / name
            if member.isdir():
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            elif member.isreg():
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                require_room(path.parent, member.size, f"the logs up to {name}")
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
                content = tar.extractfile(member)
                with os.fdopen(descriptor, "wb") as stream:
                    if content is not None:  # of a file it never is
                        shutil.copyfileobj(content, stream)


class ActionModule(ActionBase):
    """A few calls to the node: pack, then 8 MiB a call."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Fetch the logs; return where they lie."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if self._task.check_mode:
            return {"changed": True, "directory": args["directory"]}
        request = {**args, "node": task_vars["inventory_hostname"]}
        packed = call_node(self, ["_run"], {**request, "operation": "pack"}, task_vars)
        if packed["size"] is None:
            what = (
                f"{request['node']} has no run {args['run_id']} in {args['runs_directory']}: none of its logs are here"
            )
            Display().warning(what)
            return {"changed": False, "directory": None, "msg": what}
        target = Path(args["directory"])
        target.mkdir(parents=True, exist_ok=True)
        require_room(Path(tempfile.gettempdir()), packed["size"], f"the packed logs of {request['node']}")
        with tempfile.TemporaryFile() as archive:
            last = False
            while not last and archive.tell() <= packed["size"]:
                piece = call_node(
                    self, ["_run"], {**request, "operation": "piece", "offset": archive.tell()}, task_vars
                )
                archive.write(base64.b64decode(piece["data"]))
                last = piece["last"]
            archive.seek(0)
            try:
                unpack(archive, target)
            except (tarfile.TarError, EOFError, zlib.error) as problem:
                raise AnsibleActionFail(
                    f"what {request['node']} sent is not a whole archive of logs ({problem}): try again, or see who "
                    "else may write to the run's directory on this node"
                ) from problem
        return {"changed": True, "directory": str(target)}

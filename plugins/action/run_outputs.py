# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module run_outputs: lists and fetches the files that a run's job wrote on a node."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._files.bounded import MAX_ENTRIES, FileWalk
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import HASH_CALL_TIMEOUT
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import call_node
from ansible_collections.muster.training.plugins.plugin_utils._record.free_space import require_free_space
from ansible_collections.muster.training.plugins.plugin_utils._record.output_choice import (
    PARTIAL,
    OutputFile,
    batch_parts,
    find_missing,
    parse_outputs,
    partial_path,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable

ARGUMENT_SPEC = {
    "state": {"type": "str", "choices": ["listed", "compared", "fetched"], "required": True},
    "run_id": {"type": "str", "required": True},
    "outputs": {"type": "list", "elements": "str", "default": []},
    "names": {"type": "list", "elements": "str", "default": []},
    "files": {"type": "list", "elements": "dict", "default": []},
    "directory": {"type": "path", "default": ""},
    "progress_interval": {"type": "int", "default": 30},
    "runs_directory": {"type": "str", "default": "~/.muster/runs"},
    "user": {"type": "str", "default": ""},
}
PIECE_BYTES = 16 * 2**20  # bytes of file data per reply
OPERATIONS = {"listed": "tell", "compared": "compare", "fetched": "hand_out"}


class PartError(Exception):
    """A file cannot be fetched; the message explains why."""


def write_part(target: Path, output: OutputFile, offset: int, length: int, reply: Any) -> None:
    """Append a part from a node to the partial local file; rename the file to its final name once it is complete.

    Raise PartError if the part is not the requested one, or OSError if it cannot be written on this machine.
    """
    problem = reply.get("problem") if isinstance(reply, dict) else "no reply"
    try:
        data = base64.b64decode(str(reply["data"]), validate=True) if problem is None else b""
    except (KeyError, binascii.Error):
        problem = "the reply is not a file"
    if problem is None and len(data) != length:
        problem = f"{len(data)} bytes received instead of {length}"
    if problem is not None:
        raise PartError(printable(str(problem))[:200])
    path = target / output.name
    part = partial_path(target, output)
    part.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    require_free_space(part.parent, length, "the outputs of the run", "fetch fewer")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.truncate(offset)
        stream.seek(offset)
        stream.write(data)
    if offset + length == output.size:
        os.utime(part, ns=(output.mtime, output.mtime))
        part.replace(path)


def partial_files(target: Path) -> Iterator[Path]:
    """Yield the partial files in a directory; links are not followed."""
    for path, _status in FileWalk(str(target), MAX_ENTRIES):
        if os.path.basename(path).startswith(PARTIAL):
            yield target / path


class ActionModule(ActionBase):
    """Action plugin that makes one call to the node or, to fetch files, one per 16 MiB."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """List files, compare some, or fetch them."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(
            argument_spec=ARGUMENT_SPEC, required_if=[("state", "fetched", ("directory",))]
        )
        request = {
            "node": task_vars["inventory_hostname"],
            "operation": OPERATIONS[args["state"]],
            **{key: args[key] for key in ("run_id", "runs_directory", "user", "outputs", "names")},
        }
        if args["state"] == "fetched":
            return self.fetch(args, request, task_vars)
        try:
            return call_node(self, "_run.outputs", request, task_vars, HASH_CALL_TIMEOUT)
        except AnsibleConnectionFailure as error:
            if not self._task.ignore_unreachable:
                raise
            return {"changed": False, "node_unreachable": True, "files": [], "msg": str(error)}

    def fetch(self, args: dict[str, Any], request: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Fetch the missing parts of the files."""
        files, refused = parse_outputs(args["files"])
        if refused:
            raise AnsibleActionFail(f"{request['node']} has files that cannot be fetched: {', '.join(refused[:5])}")
        target = Path(args["directory"])
        pending = find_missing(target, files)
        if self._task.check_mode or not pending:
            return {"changed": bool(pending), "directory": str(target), "failures": {}}
        target.mkdir(mode=0o755, parents=True, exist_ok=True)
        size = sum(file.output.size - file.fetched for file in pending)
        require_free_space(target, size, f"the outputs of {request['node']}", "fetch fewer")
        failures = self.fetch_parts(
            target, batch_parts(pending, PIECE_BYTES), size, args["progress_interval"], request, task_vars
        )
        if not failures:
            for part in partial_files(target):  # parts of earlier versions of files
                with contextlib.suppress(OSError):
                    part.unlink()
        return {"changed": len(failures) < len(pending), "directory": str(target), "failures": failures}

    def fetch_parts(  # noqa: PLR0913
        self,
        target: Path,
        calls: list[list[tuple[OutputFile, int, int]]],
        size: int,
        interval: float,
        request: dict[str, Any],
        task_vars: dict[str, Any],
    ) -> dict[str, str]:
        """Fetch the parts call by call and show the progress; return the files that cannot be fetched, with the
        reasons.
        """
        display, node = Display(), request["node"]
        started = last_shown = time.monotonic()
        received, failures = 0, dict[str, str]()
        for call in calls:
            requested = [part for part in call if part[0].name not in failures]
            parts = [{**output._asdict(), "offset": offset, "length": length} for output, offset, length in requested]
            replies = call_node(self, "_run.outputs", {**request, "parts": parts}, task_vars).get("parts")
            valid_replies = replies if isinstance(replies, list) else []
            for number, (output, offset, length) in enumerate(requested):
                try:
                    write_part(
                        target, output, offset, length, valid_replies[number] if number < len(valid_replies) else None
                    )
                    received += length
                except (PartError, OSError) as error:
                    failures[output.name] = str(error)
                    with contextlib.suppress(OSError):
                        partial_path(target, output).unlink()
            now = time.monotonic()
            if now - last_shown >= interval:
                last_shown = now
                rate = received / (now - started)
                remaining = f", {format_duration((size - received) / rate)} to go" if rate else ""
                display.display(
                    f"[muster] {node}: {received / 1e9:.1f} of {size / 1e9:.1f} GB, {rate / 1e6:.0f} MB/s{remaining}"
                )
        duration = format_duration(time.monotonic() - started)
        display.display(f"[muster] {node}: {received / 1e6:.0f} MB after {duration}, in {target}")
        for name, reason in failures.items():
            display.warning(f"{node} did not send {printable(name)[:200]}: {reason}; run this again to get it")
        return failures

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Child processes that send and receive the parts of a checkpoint.

Each reads its request, one JSON object with the key, from its standard input, and writes its reply to its output.
"""

from __future__ import annotations

import os
import sys
import threading

from ansible_collections.muster.training.plugins.module_utils._checkpoints.transfer import (
    Server,
    TransferError,
    fetch,
)
from ansible_collections.muster.training.plugins.module_utils._files.bounded import parse_json, read_json
from ansible_collections.muster.training.plugins.module_utils._supervisor.preparation.output import write_message

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any


def read_request() -> Any:
    """Return the supervisor's request."""
    return parse_json(sys.stdin.buffer.readline(2**20).decode("utf-8"))


def checkpoint_directory(directory: str) -> str:
    """Return the job's checkpoint directory, from the plan in a run directory."""
    return str((read_json(os.path.join(directory, "plan.json")) or {}).get("checkpoints", ""))


def serve_main(arguments: list[str]) -> int:
    """Serve a checkpoint until the supervisor ends this process or exits itself; arguments: the run directory."""
    request = read_request()
    try:
        server = Server(checkpoint_directory(arguments[0]), request["name"], request["key"])
        listener = server.listen(request["address"])
    except (TransferError, OSError) as error:
        write_message({"port": 0, "error": getattr(error, "strerror", "") or str(error)})
        return 1
    write_message({"port": listener.getsockname()[1], "error": ""})
    threading.Thread(target=server.accept_all, args=(listener,), daemon=True).start()
    sys.stdin.buffer.read()  # until the supervisor has closed it
    os._exit(0)


def fetch_main(arguments: list[str]) -> int:
    """Copy the checkpoint parts that this node lacks; arguments: the run directory."""
    request = read_request()
    try:
        directory = checkpoint_directory(arguments[0])
        size = fetch(directory, request["name"], request["key"], request["sources"], request["parts"])
    except (TransferError, OSError, ValueError) as error:
        text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
        write_message({"size": 0, "error": text[:500] or "the connection failed"})
        return 1
    write_message({"size": size, "error": ""})
    return 0

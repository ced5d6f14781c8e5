# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copy files to the local disk, reading each from its source only once.

    stage.py start REQUEST      start in the background, unless already running
    stage.py follow REQUEST     show the progress until it ends

The first node lists the files to copy, which are split into pieces. Each node reads an equal share of the bytes from
the source (from_s3.py: a bucket; from_node.py: a directory on the first node), and the rest from the nodes that have it
(peers.py). If a node becomes unavailable, its share also comes from the source. A file gets its name once it is
complete and its checksum is correct. Existing files are kept; an interrupted call is resumed.
"""

from __future__ import annotations

import time
import traceback
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._stage_data import background
from ansible_collections.muster.training.plugins.module_utils._stage_data.transfer import (
    SOURCE_THREADS,
    NodeTransfer,
    remove_temporary_files,
)


def create_source(request: dict[str, Any]) -> Any:
    """Return the source of the files."""
    if request["path"]:
        from ansible_collections.muster.training.plugins.module_utils._stage_data.from_node import DirectorySource

        return DirectorySource(request)
    from ansible_collections.muster.training.plugins.module_utils._stage_data.from_s3 import BucketSource

    return BucketSource(request, 4 * SOURCE_THREADS)


def run_transfer(request: dict[str, Any]) -> None:
    """Run the whole transfer, and record how it ended."""
    transfer = NodeTransfer(request, create_source(request))
    server = None
    try:
        server = transfer.peers.serve(transfer.handle_request)
        transfer.fetch_all()
        remove_temporary_files(transfer.state_directory)
        transfer.write_status(finished=True)
        transfer.serve_peers()
        result = {
            "changed": transfer.fetched > 0,
            "files": len(transfer.entries),
            "bytes": sum(entry.size for entry in transfer.entries),
            "fetched": transfer.fetched,
            "from_source": transfer.from_source,
            "from_peers": transfer.from_peers,
            "by_size": transfer.by_size,
            "first": transfer.entries[0].path.split("/")[0],
        }
        transfer.write_status(finished=True, result=result)
        return
    except StepError as error:
        message = str(error)
    except OSError as error:
        message = str(transfer.write_error(error))
    except Exception as error:  # a bug, of which peers must learn, too
        traceback.print_exc()
        message = f"{type(error).__name__}: {error} (see {transfer.state_directory}/log)"
    transfer.failure = message
    transfer.write_status(step_error=message)
    if server:
        time.sleep(2)  # give the peers a chance to learn of the failure


def main(arguments: list[str]) -> int:
    """Run the command in the first argument; return the exit status."""
    return background.main(arguments, run_transfer)

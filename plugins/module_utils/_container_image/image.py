# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Provide the same image on all nodes, fetching or building it only once.

    image.py start REQUEST      start in the background, unless already running
    image.py follow REQUEST     show the progress until it ends

The first node pulls, loads or builds the image and, if another node lacks it, writes it into an archive. A user's
archive to which nothing is added is passed on unchanged, while the first node loads it. Each other node reads an equal
share of the archive from the first and the rest from its peers, as in stage.py and with the authentication of peers.py,
and loads it into its engine. An interrupted call is resumed.
"""

from __future__ import annotations

import time
import traceback
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._container_image.transfer import ImageTransfer
from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._stage_data import background


def run_image_transfer(request: dict[str, Any]) -> None:
    """Run the whole transfer, and record how it ended."""
    transfer = ImageTransfer(request)
    server = None
    try:
        server = transfer.peers.serve(transfer.handle_request)
        transfer.fetch_all()
        changed = transfer.load_into_engine()
        transfer.step = ""
        transfer.write_status(finished=True)
        transfer.serve_peers()
        transfer.remove_temporary_files()
        image = transfer.require(transfer.name)
        result = {"changed": changed, "id": image.id, "size": image.size, "from_peers": transfer.from_peers}
        transfer.write_status(finished=True, result=result)
        return
    except StepError as error:
        message = str(error)
    except OSError as error:
        message = str(transfer.write_error(error))
    except Exception as error:  # a bug that peers must learn about, too
        traceback.print_exc()
        message = f"{type(error).__name__}: {error} (see {transfer.state_directory}/log)"
    failed_at = time.monotonic()  # before any peer can learn of it
    transfer.failure = message
    transfer.write_status(step_error=message)
    if server:
        transfer.wait_for_peers(failed_at)


def main(arguments: list[str]) -> int:
    """Run the command in the first argument; return the exit status."""
    return background.main(arguments, run_image_transfer)

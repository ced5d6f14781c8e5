# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Handle a request about a run on its node.

A run's directory on a node is ``RUNS_DIRECTORY/RUN_ID/nodeRANK``, readable only by its user.
"""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._run.identity import reply_as_user

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data


def run_operation(request: Data) -> Data:
    """Carry out the requested operation; import only what it needs, since each import is compiled every time."""
    operation = request["operation"]
    if operation == "start":
        from ansible_collections.muster.training.plugins.module_utils._run.start import start

        return start(request)
    if operation in ("stop", "remove"):
        from ansible_collections.muster.training.plugins.module_utils._run.stop import remove, stop

        return stop(request) if operation == "stop" else remove(request)
    if operation == "save":
        from ansible_collections.muster.training.plugins.module_utils._run.save import save

        return save(request)
    if operation in ("join", "start_member"):
        from ansible_collections.muster.training.plugins.module_utils._run.join import join, start_member

        return join(request) if operation == "join" else start_member(request)
    if operation == "read":
        from ansible_collections.muster.training.plugins.module_utils._run.status import read

        return read(request)
    if operation == "watch":
        from ansible_collections.muster.training.plugins.module_utils._run.watch import watch

        return watch(request)
    if operation == "attempt":
        from ansible_collections.muster.training.plugins.module_utils._run.attempt_output import read_attempt

        return read_attempt(request)
    if operation in ("page", "search"):
        from ansible_collections.muster.training.plugins.module_utils._run.page import page, search

        return page(request) if operation == "page" else search(request)
    if operation == "stacks":
        from ansible_collections.muster.training.plugins.module_utils._run.stacks import read_stacks

        return read_stacks(request)
    if operation in ("profile", "profile_piece"):
        from ansible_collections.muster.training.plugins.module_utils._run.profile import profile, profile_piece

        return profile(request) if operation == "profile" else profile_piece(request)
    from ansible_collections.muster.training.plugins.module_utils._run.logs import pack, read_piece

    return {"pack": pack, "piece": read_piece}[operation](request)


def main(request: Data) -> Data:
    """Return the reply to a request; ``error`` in it is a message for the user."""
    return reply_as_user(request, run_operation)

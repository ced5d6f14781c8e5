# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program ``supervisor.py`` in a run directory: starts the supervisor, or its guard."""

from __future__ import annotations

import os
import sys


def write_to(log: str) -> None:
    """Redirect the output of this process and its children to a log, opened with the rights of the run's user."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)


def main(arguments: list[str]) -> int:
    """Run the supervisor of a run directory; with ``--guard`` first, as the child of a guard.

    With ``--cloud-watch``, ``--notify``, ``--check-node`` or the like first, run a child process of a supervisor.
    """
    if arguments[:1] == ["--cloud-watch"]:
        from ansible_collections.muster.training.plugins.module_utils._supervisor.notices import cloud_watch

        return cloud_watch.main(arguments[1:])
    if arguments[:1] == ["--notify"]:
        from ansible_collections.muster.training.plugins.module_utils._supervisor.notifications import sender

        return sender.main(arguments[1:])
    if arguments[:1] == ["--remove-container"]:
        from ansible_collections.muster.training.plugins.module_utils._run import container_creation

        return container_creation.main(arguments[1:])
    if arguments[:1] == ["--sample-amd-gpus"]:
        from ansible_collections.muster.training.plugins.module_utils._supervisor.health import amd_sampler

        return amd_sampler.main(arguments[1:])
    if arguments[:1] == ["--check-node"]:
        from ansible_collections.muster.training.plugins.module_utils._supervisor.preparation import node_check

        return node_check.main(arguments[1:])
    if arguments[:1] in (["--serve-checkpoint"], ["--fetch-checkpoint"]):
        from ansible_collections.muster.training.plugins.module_utils._supervisor.preparation import copies

        copy = copies.serve_main if arguments[0] == "--serve-checkpoint" else copies.fetch_main
        return copy(arguments[1:])
    if arguments[:1] == ["--report-death"]:
        from ansible_collections.muster.training.plugins.module_utils._supervisor.notifications import last_message

        write_to(os.path.join(arguments[1], "supervisor.log"))
        return last_message.main(arguments[1:])
    guarded = arguments[:1] == ["--guard"]
    write_to(os.path.join(arguments[1 if guarded else 0], "supervisor.log"))
    if guarded:
        from ansible_collections.muster.training.plugins.module_utils._supervisor.guard import guard

        return guard([sys.argv[0]] + arguments[1:])
    from ansible_collections.muster.training.plugins.module_utils._supervisor.supervisor import Supervisor

    if "SLURM_JOB_ID" not in os.environ:
        return Supervisor(arguments[0]).run()
    from ansible_collections.muster.training.plugins.module_utils._slurm import lives

    lives.begin_life(arguments[0], os.environ)
    code = Supervisor(arguments[0]).run()
    message = lives.end_life(arguments[0], code, os.environ)
    os.write(2, message.encode())
    if not message:  # the job has not been requeued
        lives.end_job_of_lost_nodes(arguments[0], os.environ)
    return code

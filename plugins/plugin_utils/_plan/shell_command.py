# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command that opens a shell where a rank would run. Pure. Private to this collection, controller only."""

from __future__ import annotations

import os
import posixpath
import shlex
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._plan.container_command import shell_argv
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import network_environment

SSH_OPTIONS = (("-p", "ansible_port"), ("-i", "ansible_ssh_private_key_file"), ("-l", "ansible_user"))


def shell_script(job: Job, facts: Mapping[str, Any], run_id: str = "") -> str:
    """What the node's shell will run: a shell in the working directory, in the job's image if it has one.

    facts: of the node. run_id: of a run in whose container the shell is to be; "", a container of its own. The values
    of the job's own variables may be secrets, and are not in it.
    """
    engine = job.container_engine
    if job.image and run_id:
        container = f"$({engine} ps --quiet --filter name={shlex.quote(f'^muster-{run_id}-node')})"
        return f'exec {engine} exec --interactive --tty "{container}" /bin/sh'
    environment = network_environment(facts["interface"], facts["address"]) if facts.get("interface") else {}
    if job.image:
        return f"exec {shlex.join(shell_argv(job, facts, environment))}"
    directory = posixpath.dirname(facts["interpreter"] or "")
    variables = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    if directory:
        variables.insert(0, f"PATH={shlex.quote(directory)}:$PATH")
    exports = [f"export {' '.join(variables)}"] if variables else []
    return "; ".join([*exports, f"cd {shlex.quote(facts['working_directory']['path'])}", 'exec "$SHELL" -i'])


def login_argv(variables: Mapping[str, Any], name: str, user: str, script: str) -> list[str]:
    """The words that run a script on a node in a terminal, as Ansible would log in there.

    variables: of the host, rendered. user: who is to run it, "" for the one who logs in.
    """
    argv = ["sudo", "-u", user, "-H", "sh", "-c", script] if user else ["sh", "-c", script]
    if variables.get("ansible_connection") == "local":
        return argv
    ssh_argv = ["ssh", "-t", *shlex.split(str(variables.get("ansible_ssh_common_args") or ""))]
    for option, variable in SSH_OPTIONS:
        if variables.get(variable):
            ssh_argv += [option, os.path.expanduser(str(variables[variable]))]
    return [*ssh_argv, str(variables.get("ansible_host") or name), shlex.join(argv)]

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command that opens a shell in a rank's environment."""

from __future__ import annotations

import os
import posixpath
import shlex
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._cluster.local_connection import is_local
from ansible_collections.muster.training.plugins.plugin_utils._plan.container_command import shell_argv
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import network_environment

SSH_OPTIONS = (("-p", "ansible_port"), ("-i", "ansible_ssh_private_key_file"), ("-l", "ansible_user"))


def shell_script(job: Job, facts: Mapping[str, Any], run_id: str = "") -> str:
    """Return the script that opens a shell in the working directory, in the job's image if it has one.

    It does not contain the job's own variables, whose values may be secrets.

    Args:
        job: the job whose environment the shell gets.
        facts: the node's facts.
        run_id: the run whose container to enter; "" starts a new container.
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


def ssh_options(variables: Mapping[str, Any]) -> list[str]:
    """Return the ssh options that Ansible would use. variables: the host's variables, rendered."""
    options = shlex.split(str(variables.get("ansible_ssh_common_args") or ""))
    for option, variable in SSH_OPTIONS:
        if variables.get(variable):
            options += [option, os.path.expanduser(str(variables[variable]))]
    return options


def login_argv(variables: Mapping[str, Any], name: str, user: str, script: str) -> list[str]:
    """Return the command that runs a script in a terminal on a node, logging in as Ansible would.

    Args:
        variables: the host's variables, rendered.
        name: the host's name.
        user: the user to run it as; "" is the login user.
        script: the script, for sh.
    """
    argv = ["sudo", "-u", user, "-H", "sh", "-c", script] if user else ["sh", "-c", script]
    if is_local(variables):
        return argv
    return ["ssh", "-t", *ssh_options(variables), str(variables.get("ansible_host") or name), shlex.join(argv)]

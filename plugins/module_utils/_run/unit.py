# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The systemd unit of a run on a node."""

from __future__ import annotations

import json
import os
import sys

from ansible_collections.muster.training.plugins.module_utils._run.container_creation import unit_removal
from ansible_collections.muster.training.plugins.module_utils._run.identity import run_as_root
from ansible_collections.muster.training.plugins.module_utils._run.secrets import NOTIFY, SECRETS
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    CONTAINER_CREATION_TIMEOUT,
    HANG_GRACE_PERIOD,
    UNIT_STOP_GRACE_PERIOD,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

CAP_SYS_RESOURCE = 24  # linux/capability.h
LIMITS = ("LimitMEMLOCK=infinity", "LimitNOFILE=1048576", "TasksMax=infinity")
# Supported since systemd 240 and 243, respectively. Without them, a hung supervisor is ended later, after its stop
# timeout.
SINCE_243 = ("WatchdogSignal=SIGKILL", "TimeoutAbortSec=5")
LOGIND = "/run/systemd/logind.conf.d/50-muster.conf"  # lasts until the next boot, as runs do


def keep_shared_memory() -> None:
    """Make logind keep the named IPC objects of the run's user when that user's last login session ends.

    RemoveIPC=yes, the default (logind.conf(5)), removes a user's /dev/shm files, semaphores and queues 10 s after the
    last connection closes, even under a running unit: data loader workers that open one by name would die. No setting
    of a unit or a user prevents it.
    """
    if os.path.exists(LOGIND) or not os.path.isdir("/run/systemd/system"):
        return
    script = (
        'umask 022; mkdir -p "${1%/*}" && printf "[Login]\\nRemoveIPC=no\\n" > "$1" '
        '&& { systemctl kill --signal=HUP systemd-logind.service || rm -f "$1"; }'
    )
    run_as_root(["/bin/sh", "-c", script, "sh", LOGIND])  # without logind or root privileges, nothing can be done


def may_raise_limits() -> bool:
    """Return whether systemd may raise limits.

    In many containers it cannot, and a unit that requests higher limits would not start.
    """
    with open("/proc/1/status", encoding="ascii") as stream:
        for line in stream:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
    return False


def quote(arguments: list[str]) -> str:
    """Quote arguments as a systemd command line."""
    return " ".join(json.dumps(argument) for argument in arguments)


def report_of_death(directory: str) -> list[str]:
    """Return the command that sends the message about the end of a run if its supervisor was killed before it could.

    A supervisor that ends by itself removes the URLs. `$` is doubled for systemd.
    """
    script = f'[ -e "$$0/{NOTIFY}" ] && exec "$$1" -I -S "$$0/supervisor.py" --report-death "$$0"'
    return ["/bin/sh", "-c", script, directory, sys.executable]


def unit_command(plan: Data, directory: str, user: str, arguments: list[str]) -> list[str]:
    """Return the systemd-run command of a run's unit."""
    secrets = [os.path.join(directory, name) for name in SECRETS]
    in_memory = {os.path.dirname(os.readlink(path)) for path in secrets if os.path.islink(path)}
    leftovers = [plan["temporary_directory"], *secrets, *sorted(in_memory)]
    has_urls = os.path.lexists(os.path.join(directory, NOTIFY))
    creation_timeout = CONTAINER_CREATION_TIMEOUT if plan.get("remove") else 0.0
    properties = [
        "KillMode=mixed",
        f"TimeoutStopSec={plan['timeouts']['grace'] + UNIT_STOP_GRACE_PERIOD + creation_timeout:g}",
        "OOMPolicy=continue",
        "NotifyAccess=main",
        f"WatchdogSec={plan['timeouts']['silence'] + HANG_GRACE_PERIOD:g}",
        *SINCE_243,
        *([f"ExecStopPost=-{quote(report_of_death(directory))}"] if has_urls else []),
        f"ExecStopPost=/bin/rm -rf {quote(leftovers)}",
    ]
    if plan.get("remove"):
        command = unit_removal(plan, directory, sys.executable, CONTAINER_CREATION_TIMEOUT)
        properties.append(f"ExecStopPost=-{quote(command)}")
    if may_raise_limits():
        properties.extend(LIMITS)
    return (
        [
            "systemd-run",
            "--quiet",
            "--collect",
            f"--unit={plan['unit']}.service",
            f"--uid={user}",
            "--service-type=exec",
        ]
        + [f"--description=muster run {plan['run_id']}, node {plan['node']['node_rank']}"]
        + ["--property=" + value for value in properties]
        + ["--"]
        + arguments
    )

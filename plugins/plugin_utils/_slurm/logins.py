# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Restrict logins on a Slurm cluster's nodes to users with a job there, using PAM rules for sshd. Pure functions.

Root and the accounts with which Ansible logs in come first, and are admitted regardless of pam_slurm_adopt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._slurm.node_state import PAM_MARK
from ansible_collections.muster.training.plugins.plugin_utils._slurm.cluster import Cluster

PACKAGE = "libpam-slurm-adopt"
ALWAYS = "root"
# A job's session ends here: pam_systemd, one of the modules that follow, would move it out of the job, which could then
# neither limit nor end it.
ADOPTED_SESSION = (
    "session required pam_limits.so",
    "session required pam_env.so",
    "session required pam_env.so envfile=/etc/default/locale",
    "session [success=done default=bad] pam_unix.so",
)
# As with "required", except that everyone may log in if the package is missing.
UNLESS_REMOVED = "[success=ok ignore=ignore module_unknown=ignore default=bad]"
DENY = "action_adopt_failure=deny action_generic_failure=deny"  # a login outside the user's job would have no limits


def admins_of(cluster: Cluster, states: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the accounts that may always log in."""
    users = {str(state["user"]["name"]) for state in states.values()}
    return sorted({ALWAYS, *users, *cluster.options.adopt_admins})


def pam_lines(cluster: Cluster, states: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the lines to insert in /etc/pam.d/sshd before those for all sessions, or [] if all users may log in.

    The last line lists all settings.
    """
    if not cluster.options.adopt_logins:
        return []
    admins = ":".join(admins_of(cluster, states))
    lines = [
        f"session [success={len(ADOPTED_SESSION)} default=ignore] pam_succeed_if.so quiet user in {admins}",
        *ADOPTED_SESSION,
        f"account sufficient pam_succeed_if.so quiet user in {admins}",
        f"-account {UNLESS_REMOVED} pam_slurm_adopt.so {DENY} # always: {admins}",
    ]
    return [f"{line} {PAM_MARK}" for line in lines]


def adopt_errors(cluster: Cluster) -> Iterable[str]:
    """Yield why logins cannot be restricted to users with jobs, as messages."""
    invalid = [name for name in cluster.options.adopt_admins if not name.replace("_", "").replace("-", "").isalnum()]
    if invalid:
        yield (f"slurm_adopt_admins: {ascii(invalid[0])} is not a valid account name. Use letters, digits, '_' and '-'")
    if cluster.options.adopt_logins and not cluster.cgroups:
        yield (
            "slurm_adopt_logins needs cgroup v2 on all nodes, and Slurm 22.05 or newer; otherwise, "
            "pam_slurm_adopt cannot tell which job a login belongs to. Leave slurm_adopt_logins out"
        )

"""Stand-ins for ssh and sudo, through which Ansible calls nodes that are this machine, and which record each call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Runs the command here. Records the node's address and, if ssh would ask for one, the password. A node whose address
# begins with "silent" accepts the connection and never replies.
SSH = """#!/bin/sh
for word; do host=$command; command=$word; done
password=
[ -z "$SSH_ASKPASS" ] || password=$("$SSH_ASKPASS" "password: ")
echo "$host $password" >> calls.log
printf '%s\\n' "$*" >> arguments.log
case $host in silent*) cat > /dev/null; echo $$ >> silent.pids; exec sleep 1000;; esac
export STUB_NODE=$host
exec sh -c "$command"
"""
# Prompts for a password and runs the command as this user.
SUDO = """#!/bin/sh
while :; do
  case $1 in
    -p) prompt=$2; shift 2;;
    -u) shift 2;;
    -*) shift;;
    *) break;;
  esac
done
printf '%s' "$prompt" >&2
read -r password
echo "$STUB_NODE $password" >> sudo.log
exec "$@"
"""


def node_stubs(directory: Path) -> dict[str, Any]:
    """Write the programs into a directory, which must be the working directory of Ansible; return their variables."""
    for name, text in (("ssh", SSH), ("sudo", SUDO)):
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    return {"ansible_ssh_executable": f"{directory}/ssh", "ansible_become_exe": f"{directory}/sudo"}


def noted(directory: Path, log: str = "calls.log") -> list[str]:
    """Return the lines recorded by the programs, and start a new list."""
    file = directory / log
    lines = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return [line.strip() for line in lines]

"""Mount a local directory in test hosts, which then share it like a network drive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.lab.hosts import Lab

# Clones the mount of a directory, enters a host's mount namespace, and attaches it there.
PROGRAM = r"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
CURRENT, OPEN_TREE, MOVE_MOUNT, CLONE_NEWNS = -100, 428, 429, 0x20000
def call(function, *arguments):
    result = function(*(ctypes.c_long(item) if isinstance(item, int) else item for item in arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
source, pid, target = sys.argv[1:]
tree = call(libc.syscall, OPEN_TREE, CURRENT, source.encode(), 1)  # OPEN_TREE_CLONE
call(libc.setns, os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY), CLONE_NEWNS)
os.makedirs(target, exist_ok=True)
if not os.path.ismount(target):
    call(libc.syscall, MOVE_MOUNT, tree, b"", CURRENT, target.encode(), 4)  # MOVE_MOUNT_F_EMPTY_PATH
"""


def share(lab: Lab, source: Path, target: str, *names: str) -> None:
    """Mount a directory at a path of some nodes, until they are switched off; names: all nodes by default."""
    for name in names or [node.name for node in lab.nodes]:
        pid = lab.first_process(name)
        completed = subprocess.run(
            [sys.executable, "-I", "-S", "-c", PROGRAM, str(source), str(pid), target],
            check=False,
            capture_output=True,
            text=True,
        )
        assert completed.returncode == 0, f"{name}: {completed.stderr}"

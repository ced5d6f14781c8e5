# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program ``supervisor.py`` in a run directory: starts the supervisor, or its guard."""

from __future__ import annotations

import os
import sys

PACKAGE = "ansible_collections.muster.training.plugins.module_utils"
FOLDER = "program"  # holds the supervisor's source files in the run directory


def make_importable(folder: str) -> None:
    """Make the files in a folder importable by their names in the collection, which may not be on this node."""
    parts = PACKAGE.split(".")
    for depth in range(1, len(parts) + 1):
        package = type(sys)(".".join(parts[:depth]))
        package.__path__ = [folder]
        sys.modules[package.__name__] = package


def write_to(log: str) -> None:
    """Redirect the output of this process and its children to a log, opened with the run's user's rights."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)


def main(arguments: list[str]) -> int:
    """Run the supervisor of a run directory; with ``--guard`` first, as the child of a guard."""
    guarded = arguments[1:2] == ["--guard"]
    write_to(os.path.join(arguments[2 if guarded else 1], "supervisor.log"))
    if guarded:
        from ansible_collections.muster.training.plugins.module_utils._supervisor.guard import guard

        return guard([arguments[0]] + arguments[2:])
    from ansible_collections.muster.training.plugins.module_utils._supervisor.supervisor import Supervisor

    return Supervisor(arguments[1]).run()


if __name__ == "__main__":
    sys.dont_write_bytecode = True  # keep __pycache__ out of the run directory
    make_importable(os.path.join(os.path.dirname(os.path.abspath(__file__)), FOLDER))
    raise SystemExit(main(sys.argv))

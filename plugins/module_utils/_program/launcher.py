# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start a program of the collection muster.training, whose modules are in the folder `program` next to this file."""

from __future__ import annotations

import os
import sys

PACKAGE = "ansible_collections.muster.training.plugins.module_utils"
FOLDER = "program"


def make_importable(folder: str) -> None:
    """Make the files in a folder importable by their names in the collection, which may not be installed on this
    node.
    """
    parts = PACKAGE.split(".")
    for depth in range(1, len(parts) + 1):
        package = type(sys)(".".join(parts[:depth]))
        package.__path__ = [folder]
        sys.modules[package.__name__] = package


def run(module: str) -> None:
    """Run a module's main() with this process's arguments, and exit with its exit status."""
    sys.dont_write_bytecode = True  # keep __pycache__ out of the folder
    make_importable(os.path.join(os.path.dirname(os.path.abspath(__file__)), FOLDER))
    name = f"{PACKAGE}.{module}"
    __import__(name)
    raise SystemExit(sys.modules[name].main(sys.argv[1:]))

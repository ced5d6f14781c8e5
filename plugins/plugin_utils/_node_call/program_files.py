# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a program that is installed on a node: a script that starts it, and the modules that the script
imports.
"""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._program.launcher import FOLDER
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import (
    module_file,
    module_source,
    required_modules,
)

LAUNCHER = "_program.launcher"


class UnknownProgramError(Exception):
    """No module with this name exists."""


def program_sources(module: str, script: str = "") -> dict[str, str]:
    """Return the contents of a program's files, by path relative to its directory. The first path is the script.

    A module without imports from this collection is the script, and starts itself.

    Args:
        module: the module with the program's main(arguments), such as "_stage_data.stage".
        script: name of the script, by default the module's.
    """
    if not module_file(module).is_file():
        raise UnknownProgramError(f"there is no module {module} in plugins/module_utils")
    script = script or module.rpartition(".")[2] + ".py"
    modules = required_modules(module)
    if modules == (module,):
        return {script: module_source(module)}
    launcher = f'{module_source(LAUNCHER)}\n\nrun("{module}")\n'
    return {
        script: launcher,
        **{f"{FOLDER}/{name.replace('.', '/')}.py": module_source(name) for name in modules},
    }

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Import this collection's plugin_utils and module_utils with Python's own loader, which caches bytecode.

Ansible's collection loader compiles each of them at each start, which takes 0.3 s of a launch. It still imports
packages and all other collections.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

from ansible.utils.collection_loader import AnsibleCollectionConfig

PLUGINS = __name__.rpartition(".plugin_utils.")[0]
PREFIXES = (f"{PLUGINS}.plugin_utils.", f"{PLUGINS}.module_utils.")


@functools.cache
def directory_finder(directory: str) -> FileFinder:
    """Return Python's finder for the source files in a directory."""
    return FileFinder(directory, (SourceFileLoader, SOURCE_SUFFIXES))


class CompiledModules(MetaPathFinder):
    """Finds the source files of this collection's utilities. Packages and everything else are left to Ansible."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a module's import spec, or None if Ansible should import it."""
        if fullname.startswith(PREFIXES):
            for directory in path or ():
                spec = directory_finder(directory).find_spec(fullname, target)
                if spec is not None and spec.loader is not None and spec.submodule_search_locations is None:
                    return spec
        return None


def use_compiled_modules() -> None:
    """From now on, import utilities this way if Ansible's loader would otherwise import them."""
    ansible_finder = AnsibleCollectionConfig.collection_finder
    if ansible_finder in sys.meta_path:
        sys.meta_path.insert(sys.meta_path.index(ansible_finder), CompiledModules())

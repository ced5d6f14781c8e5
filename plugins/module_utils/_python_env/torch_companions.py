# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Packages that are compiled against one torch build, and so must come from the same index as torch.

A project names them in any of its requirements, or another package requires them: timm requires torchvision. PyPI has
them for one CUDA version only, and with another torch they do not even import.
"""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._python_env.paths import normalize_name

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, Sequence

    Data = Dict[str, Any]

COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
# Packages of this kind for which torch's index has only some releases; the other releases are taken from wherever pip
# finds them.
PARTIAL_COMPANIONS = ("xformers", "torchao", "torchtext")


def companion_pins(resolved: list[Data], earlier: dict[str, Data], companions: Sequence[str] = COMPANIONS) -> list[str]:
    """Return pins of torch's companion packages, to be downloaded from torch's index.

    resolved: packages in a pip report. Packages from a URL or path, or from an earlier layer, are omitted.
    """
    if "torch" not in earlier:
        return []
    versions = {
        normalize_name(package["metadata"]["name"]): package["metadata"]["version"]
        for package in resolved
        if not package["is_direct"]
    }
    return [
        f"{name}=={versions[name].partition('+')[0]}" for name in companions if name in versions and name not in earlier
    ]


def unavailable_advice(pins: list[str], index: str) -> str:
    """Return the remedy if torch's index does not have a package."""
    return (
        f"{', '.join(pins)} must come from {index}, torch's index, to match the torch build. Check that this "
        "index can be reached, or remove the versions from the project's requirements, so that a version in the "
        "index is chosen"
    )

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of the role python_env on a node.

Packages are solved once, and installed everywhere from the same wheels. The first node determines which packages,
versions and files to install. The result is a lock, one per layer. Each node, including the first, installs a lock's
files. The others get them from the first one, by HTTP over the private network, and verify their hashes.

Private to this collection. Runs on the node as the owner of the environment, standard library only, Python >= 3.8.
"""

from __future__ import annotations

import contextlib
import os

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import answered
from ansible_collections.muster.training.plugins.module_utils._python_env.credentials import logged_in, take_credentials
from ansible_collections.muster.training.plugins.module_utils._python_env.file_server import end, serve
from ansible_collections.muster.training.plugins.module_utils._python_env.install import check, install
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import Place
from ansible_collections.muster.training.plugins.module_utils._python_env.root_safety import (
    refuse_what_others_can_change,
)
from ansible_collections.muster.training.plugins.module_utils._python_env.solve import look, solve

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

STEPS = {
    "read_lock": look,
    "solve": solve,
    "compare": check,
    "install": install,
    "serve": serve,
    "stop_serving": end,
}


def carry_out(asked: Data) -> Data:
    """Carry out a request. Raises Fault if that is impossible."""
    asked = dict(asked)
    for kind in ("files", "editable"):
        asked[kind] = [os.path.expanduser(path) for path in asked[kind]]
    asked, logins = take_credentials(asked)
    place = Place(asked)
    if asked["step"] != "stop_serving":
        refuse_what_others_can_change(place)
    with logged_in(place, logins) if asked["step"] == "solve" else contextlib.nullcontext():
        return STEPS[asked["step"]](asked)


def main(request: Data) -> Data:
    """A step's answer or error. request: {"step": its name, ...}, with all options of the module python_layer."""
    return answered(carry_out, request)

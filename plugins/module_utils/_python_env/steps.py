# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of the role python_env on one node.

Packages are solved once, and installed everywhere from the same wheels. The first node determines which packages,
versions and files to install. The result is a lock, one per layer. Each node, including the first, installs a lock's
files. The others download them from the first, by HTTP over the private network, and verify their hashes.
"""

from __future__ import annotations

import contextlib
import os

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import report_result
from ansible_collections.muster.training.plugins.module_utils._python_env.credentials import (
    extract_credentials,
    netrc_login,
)
from ansible_collections.muster.training.plugins.module_utils._python_env.file_server import serve, stop_serving
from ansible_collections.muster.training.plugins.module_utils._python_env.install import check, install
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import EnvironmentPaths
from ansible_collections.muster.training.plugins.module_utils._python_env.restore import restore
from ansible_collections.muster.training.plugins.module_utils._python_env.root_safety import (
    check_root_safety,
)
from ansible_collections.muster.training.plugins.module_utils._python_env.solve import read_lock, solve

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

STEPS = {
    "read_lock": read_lock,
    "solve": solve,
    "restore": restore,
    "compare": check,
    "install": install,
    "serve": serve,
    "stop_serving": stop_serving,
}


def run_step(request: Data) -> Data:
    """Run the requested step. Raise StepError if it fails."""
    request = dict(request)
    for kind in ("files", "editable"):
        request[kind] = [os.path.expanduser(path) for path in request[kind]]
    request, logins = extract_credentials(request)
    paths = EnvironmentPaths(request)
    if request["step"] != "stop_serving":
        check_root_safety(paths)
    with netrc_login(paths, logins) if request["step"] in ("solve", "restore") else contextlib.nullcontext():
        return STEPS[request["step"]](request)


def main(request: Data) -> Data:
    """Return a step's result or error; request: {"step": its name, ...}, with all options of python_layer."""
    return report_result(run_step, request)

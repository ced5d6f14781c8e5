# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run NVIDIA's own diagnostics on a node's GPUs: ``dcgmi diag -r 1``, which takes seconds and puts no load on the
GPUs.
"""

from __future__ import annotations

import os
import re
import shutil
import time

from ansible_collections.muster.training.plugins.module_utils._facts.commands import Command

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

TIMEOUT = 120.0  # seconds; it takes 2 to 20
LEVEL = "1"
DIRECTORIES = ("/usr/bin", "/usr/local/bin", "/usr/local/dcgm/bin")
ROW = re.compile(r"\|\s*(?P<name>[^|]*?)\s*\|\s*(?P<value>[^|]*?)\s*\|?\s*\Z")
RESULT = re.compile(r"(?P<result>Pass|Fail|Warn|Skip|Not Run)\b(?P<details>.*)", re.IGNORECASE)
RESULT_OF_GPU = re.compile(r"GPU ?[0-9]+: (?:Pass|Skip|Fail)\Z", re.IGNORECASE)
# first cells of table rows that describe a test
DETAIL_NAMES = re.compile(r"(?:Error|Warning|Info|GPU ?[0-9]+)\b", re.IGNORECASE)
MAX_TESTS = 100
MAX_DETAILS = 2000  # number of characters of a test's details
NO_ENGINE = "unable to establish a connection"  # printed if nv-hostengine is not running


def find_dcgmi() -> str | None:
    """Return the path of dcgmi, or None if it is not installed."""
    return shutil.which("dcgmi") or shutil.which("dcgmi", path=os.pathsep.join(DIRECTORIES))


def parse_tests(text: str) -> list[dict[str, str]]:
    """Return the name, result and details of each test in dcgmi's table, as printed by DCGM 2, 3 and 4."""
    tests: list[dict[str, str]] = []
    for line in text.splitlines():
        row = ROW.match(line.strip())
        if row is None or len(tests) >= MAX_TESTS:
            continue
        name, value = row["name"], row["value"]
        result = RESULT.match(value)
        if name and result is not None and not DETAIL_NAMES.match(name):
            details = result["details"].strip(" -")
            details = "" if details == "All" else details
            tests.append({"name": name[:100], "result": result["result"].capitalize(), "details": details})
        elif tests and (not name or DETAIL_NAMES.match(name)) and not is_passed_gpu(value):
            details = f"{tests[-1]['details']} {value}".strip()
            tests[-1]["details"] = details[:MAX_DETAILS]
    return tests


def is_passed_gpu(value: str) -> bool:
    """Return whether a row only says that a GPU passed or skipped a test."""
    return bool(RESULT_OF_GPU.match(value)) and not value.lower().endswith("fail")


def describe_failure(code: int | None, text: str, hangs: bool) -> str:
    """Return why there are no results."""
    if hangs:
        return f"dcgmi diag did not finish within {TIMEOUT:.0f} s"
    if NO_ENGINE in text.lower():
        return "the DCGM service is not running: start it with sudo systemctl enable --now nvidia-dcgm"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"dcgmi diag ended with exit code {code}: {lines[-1][:300] if lines else 'no output'}"


def main(_request: dict[str, Any]) -> dict[str, Any]:
    """Return the test results, or the reason why there are none."""
    dcgmi = find_dcgmi()
    if dcgmi is None:
        return {"changed": False, "installed": False, "tests": [], "failure": "dcgmi is not installed"}
    command = Command([dcgmi, "diag", "-r", LEVEL], env={**os.environ, "LC_ALL": "C"})
    output = command.output(time.monotonic() + TIMEOUT)
    tests = parse_tests(output.text)
    failure = "" if tests else describe_failure(output.code, output.text, output.hangs)
    return {"changed": False, "installed": True, "tests": tests, "failure": failure}

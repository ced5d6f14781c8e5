"""Explain a case by launching it: its ranks print the same output and end in the same way as in the case."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.explain.cases import Explanation

CHECKOUT = Path(__file__).resolve().parents[2]
REPLAY = Path(__file__).with_name("replay.py")
LIMIT = 180  # seconds that a launch takes
SECTION = re.compile(
    r"^  (?:cause|possibly): +(?P<cause>.*?)(?:^  because its log says:.*?)?^  what to do: +(?P<remedy>.*?)^  \w",
    re.M | re.S,
)


def explain_launched(cases: Path) -> Callable[[dict[str, Any]], Explanation]:
    """Return a function that launches a case in this file on local nodes and returns muster's explanation."""

    def explain(case: dict[str, Any]) -> Explanation:
        with tempfile.TemporaryDirectory() as name:
            # a copy, because a case with broken hardware marks this machine as bad beside its inventory
            inventory = shutil.copy(CHECKOUT / "inventories" / "local.yml", name)
            options = {
                "nnodes": len(case["exit"]),
                "nproc_per_node": 1,
                "launch_launcher": "env",
                "launch_script": str(REPLAY),
                "launch_args": f"{cases.resolve()} {case['case']}",
                "launch_report": False,
                "launch_runs_directory": name,
                "launch_node_directory": f"{name}/nodes",
                "run_id": f"case-{case['case']}",
                "launch_stacks": False,  # they would be the ones from replay.py
            }
            completed = subprocess.run(
                [
                    Path(sys.executable).with_name("ansible-playbook"),
                    "playbooks/launch.yml",
                    *("-i", inventory, "-e", json.dumps(options)),
                ],
                cwd=CHECKOUT,
                env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
        return answer_of(completed.stdout)

    return explain


def answer_of(output: str) -> Explanation:
    """Return the explanation in the output of a launch."""
    match = SECTION.search(output + "\n  end")
    if match is None:
        return Explanation("", output[-2000:], "")
    confidence = "error" if match[0].startswith("  cause") else "log"
    return Explanation("shown", " ".join(f"{match['cause']} {match['remedy']}".split()), confidence)

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The number of nvidia-smi calls of a launch, and the names of a driver's throttle reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._facts import gpu_links, health
from ansible_collections.muster.training.plugins.module_utils._health.gpu_health import DEVICE_FIELDS

NAMES = ", ".join(DEVICE_FIELDS)
DEVICE = "0, GPU-1, 1655, 00000000:01:00.0, 4, 5, 16, 16, 0"
# The stand-in rejects the whole query if it contains an unknown field, like nvidia-smi. KNOWN: the supported name.
SMI = f"""#!/bin/sh
echo "$*" >> "$SMI_LOG"
case "$*" in
*_reasons.active*)
    case "$*" in
    *"$KNOWN"*) printf '%s\\n%s\\n' "{NAMES}, x" "{DEVICE}, 0x0000000000000048" ;;
    *) echo 'Field "clocks_throttle_reasons.active" is not a valid field to query.'; exit 2 ;;
    esac ;;
*--query-gpu=index*) printf '%s\\n%s\\n' "{NAMES}" "{DEVICE}" ;;
*--status*) printf 'GPU 0: NVIDIA H100 (UUID: GPU-1)\\n\\t Link 0: 26.562 GB/s\\n' ;;
esac
"""
SLOW = ["hardware slowdown", "hardware thermal slowdown"]


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SMI_LOG", str(tmp_path / "log"))

    def set_known(name: str) -> Path:
        monkeypatch.setenv("KNOWN", name)
        return tmp_path / "log"

    return set_known


def test_health_check_starts_nvidia_smi_three_more_times_than_a_launch_without_it(smi: Any) -> None:
    log = smi("clocks_throttle_reasons.active")
    links = gpu_links.LinkQuery()
    query = health.HealthQuery(links.links)
    facts, link_facts = query.result(), links.result()
    starts = log.read_text().splitlines()
    assert len(starts) == 2 + 3 and len([line for line in starts if "--status" in line]) == 1, starts
    assert facts["gpus"][0]["throttling"] == SLOW
    assert link_facts["nvlinks"] == 1 and facts["nvlinks"]


@pytest.mark.parametrize(
    ("supported", "throttling"),
    [("clocks_throttle_reasons.active", SLOW), ("clocks_event_reasons.active", SLOW), ("neither", [])],
)
def test_devices_are_read_with_either_field_name(smi: Any, supported: str, throttling: list[str]) -> None:
    smi(supported)
    (gpu,) = health.HealthQuery().result()["gpus"]
    assert (gpu["uuid"], gpu["throttling"]) == ("GPU-1", throttling)

"""Signs of work on AMD GPUs, with recorded and synthetic output: see fixtures/amd_smi/README.md."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._idle_watch import idle_watch

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "amd_smi"


def recorded(name: str) -> str:
    return (FIXTURES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("usage", "processes", "signs"),
    [
        (recorded("usage_w7700.json"), "[]", ["a GPU is in use (42 %)"]),
        (recorded("partitions_mi300x.json"), "[]", []),
        (recorded("partitions_mi300x.json"), recorded("process_mi350x.json"), ["processes are using a GPU (3999999)"]),
        ("N/A", "No running processes detected", []),
    ],
)
def test_busy_gpus_count_as_work(usage: str, processes: str, signs: list[str]) -> None:
    assert idle_watch.amd_signs(usage, processes) == signs


class Programs:
    """A machine that has amd-smi but not nvidia-smi."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls: list[str] = []

    def __call__(self, argv: Sequence[str], text: str) -> str:
        self.calls.append(argv[0])
        if argv[0] == "nvidia-smi":
            raise FileNotFoundError(argv[0])
        if argv[0] != "systemctl" and self.error is not None:
            raise self.error
        return recorded("usage_w7700.json") if "metric" in argv else ""


def test_machine_computing_on_amd_gpus_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_watch, "AMD_DEVICE", str(tmp_path))
    assert idle_watch.read_usage(Programs(), "", str(tmp_path)).work == ["a GPU is in use (42 %)"]
    error = subprocess.TimeoutExpired("amd-smi", 60)
    signs = idle_watch.read_usage(Programs(error), "", str(tmp_path))
    assert (signs.work, signs.people) == ([], ["amd-smi is not responding (TimeoutExpired)"])


def test_machine_without_amd_gpus_starts_no_process_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_watch, "AMD_DEVICE", str(tmp_path / "missing"))
    programs = Programs()
    idle_watch.read_usage(programs, "", str(tmp_path))
    assert programs.calls == ["systemctl", "nvidia-smi"]

"""The choice of the GPU vendor, and facts about AMD GPUs from recorded output."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._facts import amd_gpus, gpu_vendors, gpus
from ansible_collections.muster.training.plugins.module_utils._facts.commands import CommandOutput
from ansible_collections.muster.training.plugins.module_utils._health import amd_smi

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "amd_smi"
STUB = f"""#!/bin/sh
echo "$@" >> "$0.calls"
case "$*" in
  static*) cat {FIXTURES}/static_mi350x.json ;;
  *--ecc*) cat {FIXTURES}/ecc_mi350x.json ;;
  metric*) cat {FIXTURES}/metric_mi350x.json ;;
  list*) cat {FIXTURES}/list_mi350x.json ;;
  process*) cat {FIXTURES}/process_mi350x.json ;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a machine without GPUs: a program directory, the PCI bus, and an unloaded kernel module."""
    for name in ("bin", "pci"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr(amd_smi, "DIRECTORIES", ())
    monkeypatch.setattr(amd_gpus, "PCI_DEVICES", str(tmp_path / "pci"))
    monkeypatch.setattr(gpus, "PCI_DEVICES", str(tmp_path / "pci"))
    monkeypatch.setattr(amd_gpus, "MODULE", str(tmp_path / "amdgpu"))
    monkeypatch.setattr(amd_gpus, "ROCM_VERSION", str(tmp_path / "rocm"))
    return tmp_path


def add_device(machine: Path, address: str, vendor: str, device_class: str) -> None:
    device = machine / "pci" / address
    device.mkdir()
    (device / "vendor").write_text(f"{vendor}\n", encoding="utf-8")
    (device / "class").write_text(f"{device_class}\n", encoding="utf-8")


def add_program(machine: Path, name: str, script: str) -> None:
    program = machine / "bin" / name
    program.write_text(script, encoding="utf-8")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("devices", "vendor"),
    [
        ([], "nvidia"),
        ([("0x10de", "0x030200")], "nvidia"),
        ([("0x1002", "0x120000")], "amd"),  # MI300X
        ([("0x1002", "0x038000")], "amd"),  # MI210
        ([("0x1002", "0x030000")], "nvidia"),  # integrated graphics: not meant for computing
        ([("0x10de", "0x030200"), ("0x1002", "0x120000")], "nvidia"),
    ],
)
def test_vendor_is_detected_on_the_pci_bus(machine: Path, devices: list[tuple[str, str]], vendor: str) -> None:
    for number, (device_vendor, device_class) in enumerate(devices):
        add_device(machine, f"0000:0{number}:00.0", device_vendor, device_class)
    assert gpu_vendors.find_vendor() == vendor


def test_graphics_cards_count_if_amd_smi_shows_them(machine: Path) -> None:
    add_device(machine, "0000:03:00.0", "0x1002", "0x030000")
    (machine / "amdgpu").mkdir()
    assert gpu_vendors.find_vendor() == "nvidia"
    add_program(machine, "amd-smi", STUB)
    assert gpu_vendors.find_vendor() == "amd"


def test_facts_of_amd_gpus(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_device(machine, "0000:05:00.0", "0x1002", "0x120000")
    add_program(machine, "amd-smi", STUB)
    (machine / "amdgpu").mkdir()
    (machine / "rocm").write_text("7.1.0-61\n", encoding="utf-8")
    monkeypatch.setattr(amd_gpus, "DEVICE_FILES", ("/nonexistent", "x"))
    query = gpu_vendors.start_query()
    facts = query.result()
    assert query.smi is None  # no nvidia-smi query follows
    assert facts["vendor"] == "amd" and facts["rocm"] == "7.1.0-61"
    assert facts["smi"] == {"state": "ok", "output": "", "path": str(machine / "bin" / "amd-smi")}
    assert facts["count"] == 2 and facts["pci"] == 2
    assert facts["driver"] == {"loaded": "6.18.3", "library": None, "on_disk": None}
    assert [(gpu["target"], gpu["memory_mib"]) for gpu in facts["devices"]] == [("gfx950", 294896)] * 2
    (process,) = facts["processes"]
    assert (process["pid"], process["memory_mib"]) == (3999999, 211510)
    assert process["devices"] == [facts["devices"][0]["uuid"]]


def test_processes_with_the_device_file_open_use_a_gpu(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = machine / "kfd"
    device.touch()
    monkeypatch.setattr(amd_gpus, "DEVICE_FILES", (str(device), f"{device}\\Z"))
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.open(device, os.O_RDONLY)
        os.read(reader, 1)
        os._exit(0)
    try:
        while pid not in gpus.open_gpu_devices(f"{device}\\Z"):
            pass
        processes = amd_gpus.AmdQuery().result()["processes"]
        assert [process["pid"] for process in processes] == [pid]
    finally:
        os.close(reader)
        os.close(writer)
        os.waitpid(pid, 0)


def test_gpus_without_amd_smi_are_counted_but_not_shown(machine: Path) -> None:
    add_device(machine, "0000:05:00.0", "0x1002", "0x120000")
    facts = gpu_vendors.start_query().result()
    assert facts["vendor"] == "amd" and facts["smi"]["state"] == "absent"
    assert (facts["count"], facts["pci"], facts["driver"]["loaded"]) == (0, 1, None)


@pytest.mark.parametrize(
    ("text", "code", "state"),
    [
        ((FIXTURES / "static_mi350x.json").read_text(encoding="utf-8"), 0, "ok"),
        ((FIXTURES / "no_driver.txt").read_text(encoding="utf-8"), 255, "no-driver"),
        ("[]\n", 0, "no-gpu"),
        ('{\n    "gpu_data": []\n}\n', 0, "no-gpu"),
        ("Traceback (most recent call last):\nKeyError: 'x'\n", 1, "failed"),
    ],
)
def test_amd_smi_failures_are_classified(text: str, code: int, state: str) -> None:
    assert amd_gpus.diagnose(CommandOutput(code, text))[0] == state


def test_amd_smi_that_hangs_is_classified() -> None:
    assert amd_gpus.diagnose(CommandOutput(None, "", hangs=True)) == ("hangs", "")


def test_nvidia_node_starts_no_amd_process(machine: Path) -> None:
    add_device(machine, "0000:05:00.0", "0x10de", "0x030200")
    add_program(machine, "amd-smi", STUB)
    add_program(machine, "nvidia-smi", "#!/bin/sh\nexit 9\n")
    (machine / "amdgpu").mkdir()  # the driver for integrated graphics
    assert gpu_vendors.start_query().result()["vendor"] == "nvidia"
    assert not (machine / "bin" / "amd-smi.calls").exists()

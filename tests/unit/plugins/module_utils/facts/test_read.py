"""Facts about a node, read on this machine and from recorded output of drivers, kernels and installers."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import runpy
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._facts import (
    commands as node_commands,
)
from ansible_collections.muster.training.plugins.module_utils._facts import (
    gpus as node_gpus,
)
from ansible_collections.muster.training.plugins.module_utils._facts import (
    network,
    peer_probe,
    read,
    software,
    storage,
    system,
)
from ansible_collections.muster.training.plugins.module_utils._mounts import ensure
from ansible_collections.muster.training.plugins.module_utils._mounts.driver import DesiredMount
from ansible_collections.muster.training.plugins.module_utils._mounts.registry import KINDS
from tests.unit.supervised import free_port

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "nvidia_smi"


def recorded(name: str) -> str:
    return (FIXTURES / name).read_text(encoding="utf-8")


# --- nvidia-smi -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "count", "model", "driver", "memory", "ecc", "error"),
    [
        ("v100_418.csv", 4, "Tesla V100-SXM2-16GB", "418.87.01", 16130, 0, ""),
        ("mixed_440.csv", 2, "GeForce GTX 1080 Ti", "440.118.02", 11178, None, ""),
        ("unknown_error_450.csv", 2, "Tesla V100-SXM2-32GB", "450.80.02", 32510, None, "Unknown Error"),
        ("a100_470.csv", 8, "A100-SXM4-40GB", "470.223.02", 40536, 0, ""),
        ("h100_535.csv", 8, "H100 80GB HBM3", "535.183.01", 81559, 0, ""),
        ("l40s_550.csv", 2, "L40S", "550.127.05", 46068, 0, ""),
        (
            "reset_575.csv",
            2,
            "RTX PRO 6000 Blackwell Server Edition",
            "575.57.08",
            97887,
            None,
            "GPU requires reset",
        ),
        ("gb10_580.csv", 1, "GB10", "580.95.05", None, None, ""),
    ],
)
def test_nvidia_smi_output_of_each_driver_generation_is_parsed(  # noqa: PLR0913
    name: str, count: int, model: str, driver: str, memory: int | None, ecc: int | None, error: str
) -> None:
    gpus = node_gpus.parse_gpus(recorded(name))
    assert [gpu["index"] for gpu in gpus] == list(range(count))
    assert len({gpu["uuid"] for gpu in gpus}) == count
    last = gpus[-1]
    assert last["name"] == model
    assert last["driver"] == driver
    assert last["memory_mib"] == memory
    assert last["ecc_uncorrected"] == ecc
    assert last["error"] == error


def test_memory_use_compute_mode_and_retired_pages_are_parsed() -> None:
    assert [gpu["memory_used_mib"] for gpu in node_gpus.parse_gpus(recorded("h100_535.csv"))][2:5] == [7, 74210, 7]
    assert {gpu["compute_mode"] for gpu in node_gpus.parse_gpus(recorded("l40s_550.csv"))} == {"Exclusive_Process"}
    first, second = node_gpus.parse_gpus(recorded("unknown_error_450.csv"))
    assert (first["ecc_uncorrected"], first["page_retirement_pending"]) == (3, True)
    assert (second["ecc_uncorrected"], second["page_retirement_pending"]) == (None, False)


@pytest.mark.parametrize(
    ("name", "code", "state"),
    [
        ("v100_418.csv", 0, "ok"),
        ("mismatch.txt", 18, "mismatch"),
        ("mismatch_old.txt", 18, "mismatch"),
        ("no_driver.txt", 9, "no-driver"),
        ("lost_520.txt", 255, "gpu-lost"),
        ("lost_535.txt", 255, "gpu-lost"),
        ("lost_reboot.txt", 15, "gpu-lost"),
        ("no_gpu.txt", 6, "no-gpu"),
        ("no_gpu.txt", 0, "no-gpu"),
        ("unknown_field.txt", 2, "failed"),
    ],
)
def test_nvidia_smi_failures_are_classified(name: str, code: int, state: str) -> None:
    text = recorded(name)
    assert node_gpus.diagnose(node_commands.CommandOutput(code, text))[0] == state
    if state != "ok":
        assert node_gpus.parse_gpus(text) == []
        assert node_gpus.diagnose(node_commands.CommandOutput(code, text))[1] in " ".join(text.split())


def test_gpu_processes_are_parsed_regardless_of_their_names() -> None:
    assert node_gpus.parse_processes(recorded("apps_535.csv")) == [
        {
            "gpu": "GPU-c7d2f5a1-1e8b-49c6-a4d3-0b9e6f18d203",
            "pid": 1328667,
            "command": "/home/ada/venv/bin/python",
            "memory_mib": 74200,
        },
        {
            "gpu": "GPU-c7d2f5a1-1e8b-49c6-a4d3-0b9e6f18d203",
            "pid": 1425258,
            "command": "python train.py --layers 1,2,3",
            "memory_mib": None,
        },
        {"gpu": "MIG-8d1f3c60-52b7-4a3d-9e1f-0c7b2d6a5f41", "pid": 77, "command": "[Not Found]", "memory_mib": 512},
    ]
    assert node_gpus.parse_processes(recorded("apps_none.csv")) == []
    assert node_gpus.parse_processes(recorded("mismatch.txt")) == []


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a function that installs a stub of nvidia-smi first on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def write_stub(directory: Path, script: str) -> None:
    stub = directory / "nvidia-smi"
    stub.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    stub.chmod(0o755)


def test_nvidia_smi_is_queried_for_gpus_and_processes(smi: Path) -> None:
    gpus, apps = FIXTURES / "h100_535.csv", FIXTURES / "apps_535.csv"
    write_stub(smi, f'case "$1" in --query-gpu=*) cat {gpus};; --query-compute-apps=*) cat {apps};; esac')
    facts = node_gpus.GpuQuery().result()
    assert facts["smi"] == {"state": "ok", "output": "", "path": str(smi / "nvidia-smi")}
    assert facts["count"] == facts["pci"] == 8
    assert {process["pid"]: process["memory_mib"] for process in facts["processes"]} == {
        1328667: 74200,
        1425258: 0,
        77: 512,
    }


def test_gpus_unknown_to_the_driver_are_still_counted_on_the_pci_bus(
    smi: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_stub(smi, f"cat {FIXTURES / 'no_gpu.txt'}; exit 6")
    monkeypatch.setattr(node_gpus, "count_driver_gpus", lambda: 8)
    monkeypatch.setattr(node_gpus, "count_pci_gpus", lambda: 8)
    facts = node_gpus.GpuQuery().result()
    assert (facts["smi"]["state"], facts["count"], facts["pci"]) == ("no-gpu", 0, 8)


def test_gpus_passed_through_to_virtual_machines_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, (vendor, kind, driver) in enumerate(
        [
            ("0x10de", "0x030200", ""),
            ("0x10de", "0x030000", "nvidia"),
            ("0x10de", "0x030200", "vfio-pci"),
            ("0x10de", "0x040300", "snd_hda_intel"),
            ("0x1a03", "0x030000", "ast"),
        ]
    ):
        device = tmp_path / f"0000:0{number}:00.0"
        device.mkdir()
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")
        if driver:
            (device / "driver").symlink_to(tmp_path / "drivers" / driver)
    monkeypatch.setattr(node_gpus, "PCI_DEVICES", str(tmp_path))
    assert node_gpus.count_pci_gpus() == 2


@pytest.mark.parametrize(
    ("command", "counts"),
    [
        ("nvtop", False),
        ("/usr/bin/btop --utf-force", False),
        ("/usr/bin/python3.11 /usr/local/bin/nvitop -m", False),
        ("python3 -m gpustat -i", False),
        ("/usr/bin/nvidia-persistenced --verbose", False),
        ("/usr/bin/nv-hostengine -n", False),
        ("/usr/lib/xorg/Xorg vt2", False),
        ("/opt/venv/bin/python train.py --name nvtop", True),
        ("python -u -m torch.distributed.run", True),
        ("python", True),
        ("./btopology", True),
        ("", True),
    ],
)
def test_monitoring_programs_do_not_count_as_using_a_gpu(
    command: str, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_gpus, "describe_process", lambda pid: {"pid": pid, "command": command})
    app = {"gpu": "GPU-1", "pid": 4711, "command": command, "memory_mib": 3}
    assert ([item["pid"] for item in node_gpus.gpu_processes([app])] == [4711]) is counts


def test_query_is_repeated_without_unsupported_fields(smi: Path) -> None:
    l40s = "index, uuid, name, driver_version, memory.total [MiB], memory.used [MiB], compute_mode"
    write_stub(
        smi,
        f"""case "$1" in *retired_pages*) cat {FIXTURES / "unknown_field.txt"}; exit 2;;
        --query-gpu=*) echo '{l40s}'; echo '0, GPU-1, NVIDIA L40S, 600.10, 46068 MiB, 1 MiB, Default';; esac""",
    )
    facts = node_gpus.GpuQuery().result()
    assert facts["smi"]["state"] == "ok"
    assert [(gpu["name"], gpu["ecc_uncorrected"]) for gpu in facts["devices"]] == [("L40S", None)]


def is_running(pid: str) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # even between opening and reading
        return False


def test_hanging_nvidia_smi_is_reported_and_killed(smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_gpus, "SMI_TIMEOUT", 0.5)
    write_stub(smi, f"echo $$ >> {smi}/pids; exec sleep 1000")
    start = time.monotonic()
    facts = node_gpus.GpuQuery().result()
    assert facts["smi"]["state"] == "hangs"
    assert time.monotonic() - start < 60
    for pid in (smi / "pids").read_text().split():
        deadline = time.monotonic() + 60
        while is_running(pid):
            assert time.monotonic() < deadline, f"nvidia-smi {pid} lives on"
            time.sleep(0.02)


# --- commands and calls that hang ------------------------------------------------------------------------------------


def test_commands_run_in_parallel_and_report_how_they_ended(tmp_path: Path) -> None:
    """Each command waits until all are running, so sequential execution would never end."""
    wait_for_all = "touch $0; until [ -e 0 ] && [ -e 1 ] && [ -e 2 ] && [ -e 3 ]; do sleep 0.05; done"
    script = f"{wait_for_all}; echo said; echo erred >&2; exit 3"
    commands = [node_commands.Command(["sh", "-c", script, str(number)], cwd=tmp_path) for number in range(4)]
    outputs = [command.output(time.monotonic() + 120) for command in commands]
    assert {(output.code, output.text, output.hangs) for output in outputs} == {(3, "said\nerred\n", False)}
    missing = node_commands.Command(["/nowhere/at/all"]).output(time.monotonic() + 1)
    assert (missing.code, missing.text) == (None, "/nowhere/at/all: No such file or directory")


def test_hanging_or_failing_call_does_not_lose_other_results() -> None:
    start = time.monotonic()
    results = node_commands.call_in_children(
        {"quick": lambda: {"state": "ok"}, "stuck": lambda: time.sleep(1000), "broken": lambda: 1 / 0}, 4.0
    )
    assert results == {"quick": {"state": "ok"}}
    assert time.monotonic() - start < 60
    assert node_commands.call_in_children({}, 0.5) == {}


# --- network ---------------------------------------------------------------------------------------------------------


def test_interfaces_and_routes_match_the_kernel() -> None:
    """Compare with iproute2 if it is installed; every machine has a loopback interface."""
    with network.open_netlink() as channel:
        interfaces = network.read_interfaces(channel)
        loopback = network.read_route(channel, "127.0.0.9")
        default = network.read_route(channel, "198.51.100.1")
    assert "127.0.0.1/8" in interfaces["lo"]["addresses"]
    assert interfaces["lo"]["loopback"]
    assert loopback is not None
    assert loopback["interface"] == "lo"
    if shutil.which("ip"):
        listed = json.loads(subprocess.run(["ip", "-j", "address"], capture_output=True, check=True).stdout)
        assert {item["ifname"]: item["mtu"] for item in listed} == {
            name: item["mtu"] for name, item in interfaces.items()
        }
        for item in listed:
            expected = {f"{address['local']}/{address['prefixlen']}" for address in item["addr_info"]}
            assert set(interfaces[item["ifname"]]["addresses"]) == expected
            assert interfaces[item["ifname"]]["up"] is ("UP" in item["flags"])
        route = subprocess.run(["ip", "-j", "route", "get", "198.51.100.1"], capture_output=True, check=False)
        if route.returncode:
            assert default is None
        else:
            [expected] = json.loads(route.stdout)
            assert default is not None
            assert default["interface"] == expected["dev"]
            assert default["source"] == expected["prefsrc"]
            assert default["gateway"] == expected.get("gateway")


def test_address_is_mapped_to_its_interface() -> None:
    addresses = {"10.0.0.4": "ens5", "fd00::1": "ens6"}
    assert network.interface_of("10.0.0.4", addresses) == "ens5"
    assert network.interface_of("fd00:0::1", addresses) == "ens6"
    assert network.interface_of("127.9.9.9", addresses) == "lo"
    assert network.interface_of("10.0.0.5", addresses) is None


def test_hosts_file_is_parsed_as_the_resolver_does() -> None:
    text = "127.0.0.1 localhost\n127.0.1.1\tNode1 node1.example # trap\n10.0.0.11 node1 # again\n\n# 10.0.0.12 node2\n"
    hosts = network.parse_hosts(text)
    assert hosts["node1"] == ["127.0.1.1", "10.0.0.11"]
    assert hosts["node1.example"] == ["127.0.1.1"]
    assert "node2" not in hosts


def test_names_are_resolved_and_a_slow_resolver_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = network.read_names(["localhost", "no.such.host.invalid"], query_resolver=True)
    assert quick["hostname"] == socket.gethostname()
    assert quick["resolver"]["localhost"][0] in ("127.0.0.1", "::1")
    release = threading.Event()

    def slow(name: str) -> list[str]:
        release.wait(120)
        return []

    monkeypatch.setattr(network, "resolve", slow)
    start = time.monotonic()
    names = network.read_names(["node1", "node2"], query_resolver=True, timeout=0.3)
    release.set()
    assert time.monotonic() - start < 60
    assert names["unanswered"] == sorted(["node1", "node2", socket.gethostname()])
    assert names["own"] is None
    assert names["resolver"] == {}


def test_process_listening_on_a_port_is_identified() -> None:
    with socket.socket() as listener:
        port = free_port()
        listener.bind(("127.0.0.1", port))
        listener.listen()
        result = network.listeners({port, 1})
        assert result[str(port)]["pid"] == os.getpid()
        assert "python" in result[str(port)]["command"] or "pytest" in result[str(port)]["command"]
        assert "1" not in result
        assert network.bind_error("127.0.0.1", port) == "Address already in use"
    assert network.bind_error("127.0.0.1", port) == ""
    assert network.listeners({port}) == {}


def test_port_owner_visible_only_to_root_is_looked_up_with_sudo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without sudo, the interpreter sees no processes, like a user without access to those of others."""
    blind, sudo = tmp_path / "blind", tmp_path / "sudo"
    blind.write_text("#!/bin/sh\n")
    sudo.write_text(
        f"#!/bin/sh\necho \"$1 $2\" >> {tmp_path}/asked\nshift 2\necho 'sudo: unable to resolve host' >&2\n"
        f'exec {sys.executable} "$@"\n'
    )
    for program in (blind, sudo):
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with socket.socket() as listener:
        port = free_port()
        listener.bind(("127.0.0.1", port))
        listener.listen()
        assert network.listeners({port})[str(port)]["pid"] == os.getpid()
        assert not (tmp_path / "asked").exists()  # not needed
        monkeypatch.setattr(sys, "executable", str(blind))
        result = network.listeners({port, 1})
        assert result[str(port)]["pid"] == os.getpid()
        assert "python" in result[str(port)]["command"] or "pytest" in result[str(port)]["command"]
        assert (tmp_path / "asked").read_text() == f"-n {blind}\n"
        sudo.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
        assert network.listeners({port}) == {str(port): {"pid": None, "command": ""}}
        sudo.unlink()
        monkeypatch.setenv("PATH", str(tmp_path))
        assert network.listeners({port}) == {str(port): {"pid": None, "command": ""}}


def test_machine_is_identified_by_boot_id_and_network_namespace() -> None:
    here = network.machine_id()
    assert Path("/proc/sys/kernel/random/boot_id").read_text().strip() in here
    assert node_commands.call_in_children({"other process": network.machine_id}, 120) == {"other process": here}
    apart = "import os, sys; print(os.readlink('/proc/self/ns/net'))"
    completed = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", apart], capture_output=True, text=True, check=False
    )
    if completed.returncode == 0:  # root only
        assert not here.endswith(completed.stdout.strip())


# --- software --------------------------------------------------------------------------------------------------------


def installed(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def test_package_versions_are_read_from_the_configured_interpreter() -> None:
    facts = software.SoftwareQuery(sys.executable, "/").result()
    assert facts["error"] == ""
    assert facts["python"] == "{}.{}.{}".format(*sys.version_info[:3])
    assert facts["prefix"] == sys.prefix
    names = {"torch": "torch", "numpy": "numpy", "deepspeed": "deepspeed", "transformers": "transformers"}
    expected = {name: installed(distribution) for name, distribution in names.items()}
    assert {name: facts["packages"].get(name) for name in names} == expected
    torch = importlib.util.find_spec("torch")
    if torch is not None and torch.origin is not None:
        version = runpy.run_path(str(Path(torch.origin).with_name("version.py")))
        assert facts["cuda"] == version["cuda"]
        assert facts["hip"] == version["hip"]


TORCH_2_8 = b"td::string ipc_hsm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120\0\0\0/pytorch/torch/csrc"
"""Of libtorch_python.so of torch 2.8.0+cu128: nothing stands between the text before it and the list."""


@pytest.mark.parametrize(
    ("library", "archs"),
    [
        (TORCH_2_8, ["sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]),
        (b"\0use_sm_carveout\0sm_80 sm_90a compute_90\0", ["sm_80", "sm_90a", "compute_90"]),
        (b"\0sm_86\0", ["sm_86"]),
        (b"\0ELF _sm_8x \0", []),
        (b"", []),
    ],
)
def test_gpu_architectures_that_torch_was_built_for_are_read(library: bytes, archs: list[str], tmp_path: Path) -> None:
    assert software.parse_archs(library) == archs
    directory = tmp_path / "site" / "torch" / "lib"
    directory.mkdir(parents=True)
    (directory / "libtorch_python.so").write_bytes(library)
    assert software.torch_archs([str(tmp_path / "none"), str(tmp_path / "site")]) == archs


def test_gpu_architectures_are_not_read_for_cpu_torch_or_without_gpus(tmp_path: Path) -> None:
    assert software.torch_archs([str(tmp_path)]) == []
    version = tmp_path / "torch" / "version.py"
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "lib" / "libtorch_python.so").write_bytes(TORCH_2_8)
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nprintf '3.12.1\\0/usr\\0{tmp_path}\\n'\n")
    program.chmod(0o755)
    for cuda, kernels, count in (("'12.8'", True, 7), ("'12.8'", False, 0), ("None", True, 0)):
        version.write_text(f"cuda: Optional[str] = {cuda}\n")
        facts = software.SoftwareQuery(str(program), "/", kernels=kernels).result()
        assert len(facts["archs"]) == count, facts


def test_glibc_version_is_reported() -> None:
    output = subprocess.run(["getconf", "GNU_LIBC_VERSION"], capture_output=True, text=True, check=True).stdout
    assert read.glibc_version() == output.split()[1]


def test_first_existing_interpreter_is_used(tmp_path: Path) -> None:
    interpreter = tmp_path / "env" / "bin" / "python"
    names = f"{interpreter}:sh"
    assert read.find_interpreter(names) == shutil.which("sh")
    interpreter.parent.mkdir(parents=True)
    interpreter.symlink_to(sys.executable)
    assert read.find_interpreter(names) == str(interpreter)
    assert read.find_interpreter("/none/python:none-such") == ""


def test_interpreter_that_fails_to_start_is_reported_with_its_error(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'No module named encodings' >&2\nexit 1\n")
    broken.chmod(0o755)
    facts = software.SoftwareQuery(str(broken), str(tmp_path)).result()
    assert facts["error"] == "No module named encodings"
    assert facts["packages"] == {}


def test_packages_are_identified_by_their_metadata_directories(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for location, names in (
        (first, ["torch-2.7.1+cu128.dist-info", "nvidia_nccl_cu12-2.26.2.dist-info", "flash_attn-2.8.3.dist-info"]),
        (second, ["torch-2.6.0.dist-info", "deepspeed-0.19.8-py3.11.egg-info", "Transformers-4.51.0.dist-info", "x"]),
    ):
        for name in names:
            (location / name).mkdir(parents=True)
    assert software.find_packages([str(first), str(tmp_path / "gone"), str(second)]) == {
        "torch": "2.7.1+cu128",
        "nccl": "2.26.2",
        "flash_attn": "2.8.3",
        "deepspeed": "0.19.8",
        "transformers": "4.51.0",
    }


@pytest.mark.parametrize(
    ("text", "cuda", "hip"),
    [
        ("__version__ = '1.13.1+cu117'\ndebug = False\ncuda = '11.7'\nhip = None\n", "11.7", None),
        ("from typing import Optional\ncuda: Optional[str] = '12.4'\nhip: Optional[str] = None\n", "12.4", None),
        ('cuda: _Optional[str] = "13.0"\nhip: _Optional[str] = None\n', "13.0", None),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '6.2.41133-dd7f95766'\n", None, "6.2.41133-dd7f95766"),
        ("cuda: Optional[str] = None\nhip: Optional[str] = None\n", None, None),
    ],
)
def test_cuda_or_hip_version_of_torch_is_read(text: str, cuda: str | None, hip: str | None) -> None:
    assert software.parse_torch_version(text) == {"cuda": cuda, "hip": hip}


# --- storage ---------------------------------------------------------------------------------------------------------

MOUNTINFO = """\
22 27 0:20 / /proc rw,relatime - proc proc rw
40 27 0:45 / /mnt/my\\040data rw,relatime shared:1 - nfs4 10.0.0.5:/data rw,vers=4.2
41 27 0:46 / /mnt/bucket rw,nosuid - fuse.s3fs s3fs rw,user_id=0
42 27 0:47 / /mnt/bucket rw,nosuid - ext4 /dev/sdb1 rw
"""
FSTAB = """\
# what is mounted at boot
UUID=1234 / ext4 defaults 0 1
//nas/share /mnt/my\\040share cifs credentials=/root/c,_netdev 0 0
10.0.0.5:/data //mnt//my\\040data/ nfs4 _netdev,nofail 0 0
/dev/xvdb /scratch/ ext4 defaults,nofail 0 2
/dev/sr0 /media/cdrom0 udf,iso9660 user,noauto 0 0
/swap.img none swap sw 0 0
"""


def test_mountinfo_and_fstab_are_parsed() -> None:
    mounts = storage.parse_mountinfo(MOUNTINFO)
    assert mounts["/mnt/my data"] == {"type": "nfs4", "source": "10.0.0.5:/data", "options": "rw,relatime"}
    assert mounts["/mnt/bucket"]["type"] == "ext4"
    assert set(storage.parse_fstab(FSTAB)) == {"/", "/mnt/my share", "/mnt/my data", "/scratch"}


def test_mounts_are_classified_as_required_at_boot_optional_or_requested() -> None:
    at_boot = storage.parse_fstab(FSTAB)
    assert storage.mount_needs([], ["/mnt/ours"], at_boot) == {
        "/": "boot",
        "/mnt/my share": "boot",
        "/mnt/my data": "boot",  # for a network drive, nofail means that booting does not wait for it
        "/scratch": "optional",
        "/mnt/ours": "requested",
    }
    assert storage.mount_needs(["/scratch"], [], at_boot)["/scratch"] == "requested"


def test_path_below_a_dead_mount_is_detected() -> None:
    mounts: list[dict[str, Any]] = [{"point": "/mnt/data", "state": "hangs"}, {"point": "/mnt/ok", "state": "ok"}]
    assert storage.dead_mount("/mnt/data/project/train.py", mounts) == "/mnt/data"
    assert storage.dead_mount("/mnt/data", mounts) == "/mnt/data"
    assert storage.dead_mount("/mnt/database", mounts) == ""
    assert storage.dead_mount("/mnt/ok/x", mounts) == ""
    assert storage.dead_mount("/mnt//data/project/", mounts) == "/mnt/data"
    assert storage.dead_mount("python3", [{"point": os.getcwd(), "state": "stale"}]) == ""


def test_link_into_a_dead_mount_is_detected_without_hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    project.symlink_to(tmp_path / "data")
    dead = [{"point": str(tmp_path / "data"), "state": "hangs"}]
    assert storage.dead_mount(f"{project}/train.py", dead) == dead[0]["point"]
    assert storage.dead_mount(f"{tmp_path}/other", dead) == ""
    monkeypatch.setattr(storage, "MOUNT_TIMEOUT", 0.1)
    monkeypatch.setattr(os.path, "realpath", lambda _path: time.sleep(1000))
    assert storage.dead_mount(f"{project}/train.py", dead) == dead[0]["point"]


def test_only_musters_mount_units_are_read_with_type_and_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = DesiredMount(str(tmp_path / "a %b"), "bucket:/x")
    files = ensure.desired_files(KINDS["mount-s3"], expected)
    wants = tmp_path / "remote-fs.target.wants"
    wants.mkdir()
    (wants / "ours.mount").write_text(files.unit_text)
    (wants / "other.mount").write_text("[Mount]\nWhat=x\nWhere=/y\nType=nfs\n")
    monkeypatch.setattr(storage, "UNITS", str(tmp_path))
    expected_units = {expected.path: {"type": "mount-s3", "source": "s3://bucket/x/"}}
    assert storage.read_units() == expected_units
    (result,) = [mount for mount in storage.read_mounts([]) if mount["point"] == expected.path]
    assert (result["type"], result["state"]) == ("mount-s3", "missing")


def test_working_mount_of_a_muster_unit_is_ok_and_has_a_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "read_units", lambda: {"/proc": {"type": "s3fs", "source": "bucket"}})
    (result,) = [mount for mount in storage.read_mounts([]) if mount["point"] == "/proc"]
    assert (result["type"], result["state"]) == ("s3fs", "ok") and result["listing"]["count"] > 10


def test_requested_mount_that_is_not_mounted_is_missing(tmp_path: Path) -> None:
    expected = str(tmp_path)
    result = {mount["point"]: mount["state"] for mount in storage.read_mounts([expected, "/"])}
    assert result[expected] == "missing"
    assert result["/"] == "ok"


@pytest.mark.parametrize("expected", ["/proc/", "//proc", "/usr/..//proc/.", "~/../proc"])
def test_path_of_a_requested_mount_is_normalized(expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/root")
    (result,) = [mount for mount in storage.read_mounts([expected]) if mount["requirement"] == "requested"]
    assert (result["point"], result["type"], result["state"]) == ("/proc", "proc", "ok")


def test_requested_mount_may_be_a_link_to_a_mount_point(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to("/proc")
    (result,) = [mount for mount in storage.read_mounts([f"{tmp_path}/data/"]) if mount["requirement"] == "requested"]
    assert (result["point"], result["state"]) == ("/proc", "ok")


def test_mount_without_read_permission_is_unreadable(tmp_path: Path) -> None:
    tmp_path.chmod(0)

    def touch_unprivileged() -> dict[str, str]:
        if os.geteuid() == 0:  # root can read everything
            os.setuid(65534)
        return storage.touch_mount(str(tmp_path))()

    try:
        assert node_commands.call_in_children({"mount": touch_unprivileged}, 5)["mount"]["state"] == "unreadable"
    finally:
        tmp_path.chmod(stat.S_IRWXU)


def test_disk_space_is_read_at_the_nearest_existing_directory(tmp_path: Path) -> None:
    disks = storage.read_disks({"runs": str(tmp_path / "not" / "yet")}, [])
    usage = shutil.disk_usage(tmp_path)
    assert disks["runs"]["path"] == str(tmp_path)
    assert disks["runs"]["total_bytes"] == usage.total
    assert storage.read_disks({"runs": "/mnt/x/y"}, [{"point": "/mnt/x", "state": "hangs"}]) == {}


# --- system ----------------------------------------------------------------------------------------------------------


def test_leftover_variables_are_reported_with_their_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.endswith(("RANK", "WORLD_SIZE")) or name.startswith(("MASTER_", "PET_", "NCCL_SOCKET")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(system, "ENVIRONMENT_FILES", ("~/.bashrc", "~/.profile.d/*.sh"))
    (tmp_path / ".bashrc").write_text(
        "# export RANK=0\nexport RANK=3\nPET_NNODES='2:4'\nMYRANK=1\nexport NCCL_SOCKET_IFNAME=eth0 # old\n"
    )
    (tmp_path / ".profile.d").mkdir()
    (tmp_path / ".profile.d" / "a.sh").write_text('MASTER_ADDR="10.0.0.1"\n')
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert system.leftover_variables(str(tmp_path)) == [
        {"name": "WORLD_SIZE", "value": "8", "where": "the environment of a login"},
        {"name": "RANK", "value": "3", "where": f"{tmp_path}/.bashrc line 2"},
        {"name": "PET_NNODES", "value": "2:4", "where": f"{tmp_path}/.bashrc line 3"},
        {"name": "NCCL_SOCKET_IFNAME", "value": "eth0", "where": f"{tmp_path}/.bashrc line 5"},
        {"name": "MASTER_ADDR", "value": "10.0.0.1", "where": f"{tmp_path}/.profile.d/a.sh line 1"},
    ]


def test_memory_and_limits_match_this_machine() -> None:
    import resource

    memory = system.read_memory()
    assert 0 < memory["available_bytes"] <= memory["total_bytes"]
    login = system.LimitsQuery(has_systemd=False, raises_limits=True).result()
    assert login["nofile"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert system.LimitsQuery(has_systemd=True, raises_limits=True).result() == {
        "nofile": 1048576,
        "memlock": -1,
        "from": "the run's unit",
    }
    assert system.parse_limit("infinity") == -1


# --- everything ------------------------------------------------------------------------------------------------------


def request(tmp_path: Path, **overrides: Any) -> dict[str, Any]:
    return {
        "node": "me",
        "address": "127.0.0.1",
        "peers": {"me": "127.0.0.1"},
        "ports": [],
        "interpreter": sys.executable,
        "script": "job.py",
        "args": [],
        "working_directory": str(tmp_path),
        "runs_directory": str(tmp_path / "runs"),
        "run_id": "",
        "user": "",
        "mounts": [],
        "parts": ["gpus", "software", "storage", "system", "names"],
        "probe": None,
        **overrides,
    }


def test_interpreter_is_started_once_for_packages_and_provenance(tmp_path: Path) -> None:
    interpreter, log = tmp_path / "python", tmp_path / "starts"
    interpreter.write_text(f'#!/bin/sh\necho start >> {log}\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    parts = ["software", "provenance"]
    facts = read.main(request(tmp_path, interpreter=str(interpreter), parts=parts))["facts"]
    assert facts["provenance"]["environment"]["packages"]["pytest"] == importlib.metadata.version("pytest")
    assert facts["software"]["python"] and log.read_text() == "start\n"


def test_reply_contains_exactly_the_requested_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.py").write_text("pass\n")
    monkeypatch.setenv("MUSTER_CLOCK_SHIFT", "90")
    facts = read.main(request(tmp_path))["facts"]
    json.dumps(facts)
    assert facts["script"]["is_file"]
    assert facts["script"]["sha256"] == hashlib.sha256(b"pass\n").hexdigest()
    assert facts["working_directory"]["is_directory"]
    assert facts["interpreter"] == sys.executable
    assert facts["interface"] == "lo"
    assert abs(facts["clock"]["start"] - time.time() - 90) < 20
    assert {"gpus", "software", "storage", "system", "names"} <= set(facts) and "checkout" not in facts
    assert read.main(request(tmp_path, parts=["checkout"]))["facts"]["checkout"] is None
    least = read.main(request(tmp_path, parts=[], interpreter="", script=""))["facts"]
    assert not {"gpus", "software", "storage", "system", "names"} & set(least)
    assert least["script"] is None
    assert least["interpreter"] is None


@pytest.mark.parametrize("parts", [[], ["storage"]])
def test_earlier_probe_does_not_make_ports_appear_in_use(tmp_path: Path, parts: list[str]) -> None:
    address = f"127.11.{os.getpid() % 250}.7"
    port = free_port()
    probe = {"token": "of this test", "candidates": [], "lifetime": 120}
    peers = {"me": address, "gone": f"127.11.{os.getpid() % 250}.8"}
    own_request = {"address": address, "peers": peers, "ports": [port]}
    peer_probe.PeerProbe(request(tmp_path, **own_request, probe=probe)).result()
    assert network.bind_error(address, port) != ""
    facts = read.main(request(tmp_path, **own_request, parts=parts))["facts"]
    assert facts["binds"] == {str(port): ""}


def test_programs_are_located_on_the_node_regardless_of_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With launch_image, the interpreter belongs to the image, and the node needs only the engine."""
    engine = tmp_path / "bin" / "docker"
    engine.parent.mkdir()
    engine.write_text("#!/bin/sh\n")
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", str(engine.parent))
    for interpreter in (sys.executable, str(tmp_path / "opt" / "conda" / "bin" / "python"), ""):
        facts = read.main(request(tmp_path, interpreter=interpreter, parts=["software"]))["facts"]
        assert facts["programs"] == {"docker": str(engine)}
        assert ("software" in facts) == (interpreter == sys.executable)
    dead = [{"point": str(tmp_path), "type": "nfs4", "source": "x", "state": "hangs", "error": "no reply within 3 s"}]
    monkeypatch.setattr(storage, "read_mounts", lambda _requested: dead)
    assert read.main(request(tmp_path, parts=["software", "storage"]))["facts"]["programs"] == {}


def test_nothing_below_a_dead_mount_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = [{"point": str(tmp_path), "type": "nfs4", "source": "x", "state": "hangs", "error": "no reply within 3 s"}]
    monkeypatch.setattr(storage, "read_mounts", lambda _requested: dead)
    touched: list[str] = []

    def exists(path: str) -> bool:
        touched.append(str(path))
        return True

    monkeypatch.setattr(os.path, "exists", exists)
    facts = read.main(request(tmp_path, interpreter=str(tmp_path / "python")))["facts"]
    assert facts["working_directory"]["dead_mount"] == str(tmp_path)
    assert facts["script"]["dead_mount"] == str(tmp_path)
    assert facts["interpreter"] == str(tmp_path / "python")
    assert "software" not in facts
    assert set(facts["storage"]["disks"]) == {"temporary"}
    assert not [path for path in touched if path.startswith(str(tmp_path))]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
@pytest.mark.parametrize("parts", [[], ["storage"]])
def test_missing_user_is_reported_by_name(tmp_path: Path, parts: list[str]) -> None:
    reply = read.main(request(tmp_path, user="nobody-here", parts=parts))
    assert reply["error"].startswith("user 'nobody-here' does not exist on this node: create it, or set launch_user")


def test_environments_in_a_machine_image_are_discovered_without_starting_them(tmp_path: Path) -> None:
    def make(interpreter: str, packages: str, torch: bool = True) -> None:
        for path in (tmp_path / interpreter, tmp_path / packages / "torch" / "version.py"):
            path.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / interpreter).write_text("#!/bin/false\n")
        (tmp_path / interpreter).chmod(0o755)
        (tmp_path / packages / "torch" / "version.py").write_text("cuda: Optional[str] = '12.8'\n")
        if torch:
            (tmp_path / packages / "torch-2.7.0+cu128.dist-info").mkdir()

    make("opt/pytorch/bin/python", "opt/pytorch/lib/python3.12/site-packages")
    make("opt/conda/bin/python", "opt/conda/lib/python3.10/site-packages", torch=False)
    make("opt/conda/envs/pytorch/bin/python", "opt/conda/envs/pytorch/lib/python3.10/site-packages")
    make("usr/bin/python3.10", "usr/local/lib/python3.10/dist-packages")
    make("opt/muster/envs/toy/env/bin/python", "opt/muster/envs/toy/env/lib/python3.12/site-packages")
    environments = software.find_environments(f"{tmp_path}/")
    assert environments[-1]["project"] == "toy" and not any(entry["project"] for entry in environments[:-1])
    environments = environments[:-1]
    paths = [os.path.relpath(str(environment["interpreter"]), tmp_path) for environment in environments]
    assert paths == ["opt/pytorch/bin/python", "opt/conda/envs/pytorch/bin/python", "usr/bin/python3.10"]
    assert {(environment["torch"], environment["cuda"]) for environment in environments} == {("2.7.0+cu128", "12.8")}
    assert software.find_environments(f"{tmp_path}/nowhere/") == []

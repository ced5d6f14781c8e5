"""Nodes whose Python is too old for the newest torch: 3.9 of Debian 11, and 3.8 as on Ubuntu 20.04."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab import Lab
from tests.lab.hosts import down
from tests.support import drive
from tests.support.drive import root_shell
from tests.support.one_gpu import one_gpu

TICKS = str(drive.JOBS / "ticks.py")
PYTHON_3_8 = Path.home() / ".pyenv" / "versions" / "3.8.18"
NOT_NEEDED = ("test", "idlelib", "tkinter", "site-packages", "__pycache__", "*.a")
SMI = one_gpu("NVIDIA A100", "8.0", 40960)


def write_inventory(lab: Lab, node: str, path: Path, python: str) -> Path:
    """Write an inventory of one node, whose jobs run with Ansible's interpreter; return its path."""
    result = yaml.safe_load(lab.inventory.read_text())
    result["training"]["hosts"] = {node: result["training"]["hosts"][node]}
    result["training"]["vars"] |= {"ansible_python_interpreter": python, "launch_python": python}
    path.write_text(yaml.safe_dump(result))
    return path


def check_software(lab: Lab, node: str, inventory: Path, chosen: tuple[str, ...], directory: str) -> None:
    """Check the versions chosen for flash-attention on a node with a GPU, then install a package and start a run."""
    smi = "/usr/local/bin/nvidia-smi"
    root_shell(lab, node, f"cat > {smi} <<'STUB'\n{SMI}STUB\nchmod 755 {smi}")
    settings = {"flash_attention_enabled": True, "python_env_directory": directory}
    options = ("--check", "--tags", "pytorch,python_env,flash_attention")
    play = drive.run("site.yml", inventory, options=options, timeout=540, **settings)
    root_shell(lab, node, f"rm {smi}")
    assert play.rc == 0, play.output
    output = " ".join(play.output.split())
    for text in chosen:
        assert text in output, play.output
    root_shell(lab, node, f"test ! -e {directory}")

    expected = {"pytorch_enabled": False, "python_env_requirements": ["colorama"], "python_env_directory": directory}
    play = drive.run("site.yml", inventory, options=("--tags", "python_env"), timeout=540, **expected)
    assert play.rc == 0, play.output
    root_shell(lab, node, f"{directory}/env/bin/python -c 'import colorama'")

    play = drive.start("launch.yml", inventory, launch_launcher="env", launch_script=TICKS, run_id="old", detach=True)
    assert play.wait().rc == 0, play.output
    stopped = drive.run("stop.yml", inventory, run_id="old")
    assert stopped.rc == 0 and "stopped on request" in stopped.output, stopped.output
    drive.nothing_left(lab, [node], within=30)


@pytest.fixture
def debian_11() -> Iterator[Lab]:
    """Yield a host with Debian 11."""
    lab = Lab.up(nodes=1, name="old", suite="bullseye")
    # this Python's OpenSSL finds the machine's own certificate authority only by the name of a link
    root_shell(lab, "node1", "update-ca-certificates")
    yield lab
    down(lab.name)


@pytest.mark.thorough  # 3.8 lacks more features, and an image of a different release takes a minute
def test_software_and_runs_work_on_debian_11(debian_11: Lab, tmp_path: Path) -> None:
    inventory = write_inventory(debian_11, "node1", tmp_path / "machines.yml", "/usr/bin/python3")
    chosen = (
        "Python 3.9: python3 of the nodes",
        "torch 2.6.0: the newest compatible release",
        "flash-attention 2.7.4.post1: the newest with a wheel for this torch",
    )
    check_software(debian_11, "node1", inventory, chosen, "/opt/old")


@pytest.fixture
def python_3_8(lab: Lab) -> Iterator[str]:
    """Yield the path of a Python 3.8 on node3, installed at its build prefix."""
    if not PYTHON_3_8.exists():
        pytest.skip(f"{PYTHON_3_8} is not there, and neither Debian's nor Python's package archive has a Python 3.8")
    excludes = [f"--exclude={name}" for name in NOT_NEEDED]
    pack = ["tar", "--directory=/", *excludes, "--create", str(PYTHON_3_8).lstrip("/")]
    with subprocess.Popen(pack, stdout=subprocess.PIPE) as tar:
        unpack = lab.ssh("node3", "sudo tar --directory=/ --extract")
        subprocess.run(unpack, stdin=tar.stdout, check=True, timeout=120)
    path = "/usr/local/bin/python3"
    home = PYTHON_3_8.parts[1]  # root's home directory, which other users must be able to traverse
    mode = root_shell(lab, "node3", f"stat --format=%a /{home}")
    root_shell(lab, "node3", f"chmod o+x /{home}; ln -s {PYTHON_3_8}/bin/python3.8 {path}")
    yield path
    root_shell(lab, "node3", f"rm -r {path} {PYTHON_3_8}; chmod {mode} /{home}")


def test_software_and_runs_work_with_python_3_8(lab: Lab, python_3_8: str, tmp_path: Path) -> None:
    assert root_shell(lab, "node3", f"{python_3_8} --version").startswith("Python 3.8.")
    inventory = write_inventory(lab, "node3", tmp_path / "machines.yml", python_3_8)
    chosen = (
        "Python 3.12: installed by uv; torch 2.8.0 has no wheel for Python 3.8",
        "torch 2.8.0: the newest compatible release",
        "flash-attention 2.8.3: the newest with a wheel for this torch",
    )
    check_software(lab, "node3", inventory, chosen, "/opt/old")

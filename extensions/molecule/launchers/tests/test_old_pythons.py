"""Nodes with a Python that is too old for the newest torch: 3.9 of Debian 11, and 3.8 as on Ubuntu 20.04."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab import Lab
from tests.lab.hosts import down
from tests.support import drive
from tests.support.one_gpu import one_gpu

TICKS = str(drive.JOBS / "ticks.py")
PYTHON_3_8 = Path.home() / ".pyenv" / "versions" / "3.8.18"
NOT_NEEDED = ("test", "idlelib", "tkinter", "site-packages", "__pycache__", "*.a")
SMI = one_gpu("NVIDIA A100", "8.0", 40960)


def root(lab: Lab, node: str, command: str) -> str:
    """What root's command prints on a node; it must succeed."""
    done = lab.exec(node, ["bash", "-c", command])
    assert done.returncode == 0, f"{node}: {command}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def of_one_node(lab: Lab, node: str, path: Path, python: str) -> Path:
    """An inventory of one node of a lab, on which jobs run with the Python that Ansible uses there."""
    result = yaml.safe_load(lab.inventory.read_text())
    result["training"]["hosts"] = {node: result["training"]["hosts"][node]}
    result["training"]["vars"] |= {"ansible_python_interpreter": python, "launch_python": python}
    path.write_text(yaml.safe_dump(result))
    return path


def judge(lab: Lab, node: str, inventory: Path, chosen: tuple[str, ...], directory: str) -> None:
    """What is chosen with flash-attention alone for a node with a GPU, then a package, and a run, both for real."""
    smi = "/usr/local/bin/nvidia-smi"
    root(lab, node, f"cat > {smi} <<'STUB'\n{SMI}STUB\nchmod 755 {smi}")
    asked = {"flash_attention_enabled": True, "python_env_directory": directory}
    options = ("--check", "--tags", "pytorch,python_env,flash_attention")
    play = drive.run("site.yml", inventory, options=options, timeout=540, **asked)
    root(lab, node, f"rm {smi}")
    assert play.rc == 0, play.output
    output = " ".join(play.output.split())
    for arguments in chosen:
        assert arguments in output, play.output
    root(lab, node, f"test ! -e {directory}")

    expected = {"pytorch_enabled": False, "python_env_requirements": ["colorama"], "python_env_directory": directory}
    play = drive.run("site.yml", inventory, options=("--tags", "python_env"), timeout=540, **expected)
    assert play.rc == 0, play.output
    root(lab, node, f"{directory}/env/bin/python -c 'import colorama'")

    play = drive.start("launch.yml", inventory, launch_launcher="env", launch_script=TICKS, run_id="old", detach=True)
    assert play.wait().rc == 0, play.output
    stopped = drive.run("stop.yml", inventory, run_id="old")
    assert stopped.rc == 0 and "stopped on request" in stopped.output, stopped.output
    drive.nothing_left(lab, [node], within=30)


@pytest.fixture
def debian_11() -> Iterator[Lab]:
    """A host of Debian 11."""
    lab = Lab.up(nodes=1, name="old", suite="bullseye")
    # this Python's OpenSSL finds the machine's own certificate authority only by the name of a link
    root(lab, "node1", "update-ca-certificates")
    yield lab
    down(lab.name)


@pytest.mark.thorough  # 3.8 lacks more features, and an image of a different release takes a minute
def test_software_and_runs_work_on_debian_11(debian_11: Lab, tmp_path: Path) -> None:
    inventory = of_one_node(debian_11, "node1", tmp_path / "machines.yml", "/usr/bin/python3")
    chosen = (
        "Python 3.9: python3 of the nodes",
        "torch 2.6.0: the newest compatible release",
        "flash-attention 2.7.4.post1: the newest with a wheel for them",
    )
    judge(debian_11, "node1", inventory, chosen, "/opt/old")


@pytest.fixture
def python_3_8(lab: Lab) -> Iterator[str]:
    """A Python 3.8 as python3 of node3, at the place for which it was built."""
    if not PYTHON_3_8.exists():
        pytest.skip(f"{PYTHON_3_8} is not there, and neither Debian's nor Python's package archive has a Python 3.8")
    leave_out = [f"--exclude={name}" for name in NOT_NEEDED]
    packed = ["tar", "--directory=/", *leave_out, "--create", str(PYTHON_3_8).lstrip("/")]
    with subprocess.Popen(packed, stdout=subprocess.PIPE) as tar:
        unpack = lab.ssh("node3", "sudo tar --directory=/ --extract")
        subprocess.run(unpack, stdin=tar.stdout, check=True, timeout=120)
    path = "/usr/local/bin/python3"
    home = PYTHON_3_8.parts[1]  # root's home directory, which other users must be able to traverse
    mode = root(lab, "node3", f"stat --format=%a /{home}")
    root(lab, "node3", f"chmod o+x /{home}; ln -s {PYTHON_3_8}/bin/python3.8 {path}")
    yield path
    root(lab, "node3", f"rm -r {path} {PYTHON_3_8}; chmod {mode} /{home}")


def test_software_and_runs_work_with_python_3_8(lab: Lab, python_3_8: str, tmp_path: Path) -> None:
    assert root(lab, "node3", f"{python_3_8} --version").startswith("Python 3.8.")
    inventory = of_one_node(lab, "node3", tmp_path / "machines.yml", python_3_8)
    chosen = (
        "Python 3.12: installed by uv; torch 2.8.0 has no wheel for Python 3.8",
        "torch 2.8.0: the newest compatible release",
        "flash-attention 2.8.3: the newest with a wheel for them",
    )
    judge(lab, "node3", inventory, chosen, "/opt/old")

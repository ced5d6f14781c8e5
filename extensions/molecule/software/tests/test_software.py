"""One environment on two nodes with uv by default; venv, conda and flash-attention in separate directories."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Lab
from tests.support import drive
from tests.support.drive import root_shell
from tests.support.one_gpu import one_gpu
from tests.support.recap import unchanged

HERE = Path(__file__).parents[1]
CONVERGE = str(HERE / "converge.yml")
STAND_INS = str(HERE / "stand_ins.yml")
NODES = ("node1", "node2")


def flat_output(play: drive.Play) -> str:
    return " ".join(play.output.split())


def on_all(lab: Lab, command: str) -> set[str]:
    return {root_shell(lab, node, command) for node in NODES}


def test_all_nodes_have_the_same_packages_at_the_same_path(lab: Lab) -> None:
    (listing,) = on_all(lab, "/opt/muster/env/bin/python -m pip list --format json")
    versions = {item["name"]: item["version"] for item in json.loads(listing)}
    assert versions["torch"].startswith("2.13.0")
    assert versions["deepspeed"].startswith("0.19.8")
    assert {"pip", "scikit-learn", "numpy"} <= set(versions)
    (owner,) = on_all(lab, "stat --format=%U /opt/muster/env/bin/python")
    assert owner == "muster"


def test_only_the_first_node_keeps_archives_and_compilers(lab: Lab) -> None:
    for node in NODES[1:]:
        assert root_shell(lab, node, "ls /opt/muster/store") == ""
        root_shell(lab, node, "! command -v g++")
    assert "torch-2.13.0" in root_shell(lab, "node1", "ls /opt/muster/store")


def test_ops_built_on_the_first_node_are_on_all_nodes(lab: Lab) -> None:
    question = "import deepspeed.git_version_info as info; print(info.installed_ops['deepspeed_shm_comm'])"
    assert on_all(lab, f'DS_ACCELERATOR=cpu /opt/muster/env/bin/python -c "{question}" 2>/dev/null | tail -1') == {"1"}


def test_package_server_on_the_first_node_has_ended(lab: Lab) -> None:
    assert "exec(sys.stdin.buffer.readline())" not in root_shell(lab, "node1", "ps -ww -eo args")


def test_job_uses_the_environment_without_launch_python(lab: Lab, tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yml"
    lines = lab.inventory.read_text().splitlines()
    inventory.write_text("\n".join(line for line in lines if "launch_python" not in line))
    script = str(drive.CHECKOUT / "examples" / "ddp" / "train_ddp.py")
    play = drive.run("launch.yml", inventory, launch_script=script, nnodes=2, run_id="software")
    assert play.rc == 0, play.output
    plan = json.loads(root_shell(lab, "node1", "cat /home/muster/.muster/runs/software/node0/plan.json"))
    assert plan["command"][0] == "/opt/muster/env/bin/python"


@pytest.mark.thorough  # tests/unit/plugins/plugin_utils/software/test_choose.py
def test_nonexistent_torch_and_cuda_pair_is_refused_before_download(lab: Lab) -> None:
    play = drive.run(STAND_INS, lab.inventory, part="torch", pytorch_version="2.8.0", pytorch_cuda="12.4")
    assert play.rc == 2
    assert "torch 2.8.0 does not exist for CUDA 12.4, only for CUDA 12.6, 12.8, 12.9" in flat_output(play)
    assert "resolving and downloading packages" not in play.output


SMI = one_gpu("Quadro P4000", "6.1", 8192)


@pytest.fixture
def pascals(lab: Lab) -> Iterator[None]:
    """Give each node a fake nvidia-smi with a GPU that few builds of torch support."""
    path = "/usr/local/bin/nvidia-smi"
    for node in NODES:
        root_shell(lab, node, f"cat > {path} <<'STUB'\n{SMI}STUB\nchmod 755 {path}")
    yield
    for node in NODES:
        root_shell(lab, node, f"rm -f {path}")


def test_torch_choice_is_shown_with_reasons_before_any_change(lab: Lab, pascals: None) -> None:
    options = ("--check", "--limit", "node1,node2")
    settings: dict[str, Any] = {"part": "torch", "python_env_directory": "/opt/chosen"}
    play = drive.run(STAND_INS, lab.inventory, options=options, **settings)
    assert play.rc == 0, play.output
    assert "torch 2.13.0: the newest compatible release" in flat_output(play)
    assert "CUDA 12.6: the newest build that the drivers support (580.65.06 on node1, node2)" in flat_output(play)
    assert "torch 2.13.0 for CUDA 13.2 has no kernels for Quadro P4000 (compute capability 6.1)" in flat_output(play)

    refused = drive.run(STAND_INS, lab.inventory, options=options, flash_attention_enabled=True, **settings)
    assert refused.rc == 2
    assert "FlashAttention 2 has no kernels for Quadro P4000 (compute capability 6.1) on node1, node2" in flat_output(
        refused
    )
    assert "Show what would be installed" not in refused.output
    for node in NODES:
        root_shell(lab, node, "test ! -e /opt/chosen")


def stand_in(lab: Lab, part: str, **more: Any) -> drive.Play:
    """Run a play of stand_ins.yml on two nodes."""
    return drive.run(STAND_INS, lab.inventory, options=("--limit", "node1,node2"), timeout=300, part=part, **more)


def test_venv_without_ensurepip_installs_source_tree_with_extras(lab: Lab) -> None:
    for node in NODES:
        root_shell(lab, node, "! python3 -m ensurepip --version")
    play = stand_in(lab, "venv", python_env_requirements=["six"])
    assert play.rc == 0, play.output
    python = "/opt/venv/env/bin/python"
    for node in NODES:
        assert root_shell(lab, node, f"{python} -c 'import six'") == ""
        assert root_shell(lab, node, f'cd / && {python} -c "import project, colorama; print(project.__file__)"') == (
            "/srv/project/project.py"
        )
    reduced = stand_in(lab, "venv")
    assert "six removed from all nodes (no longer required by any package)" in flat_output(reduced), reduced.output
    for node in NODES:
        root_shell(lab, node, f"! {python} -c 'import six' 2>&1")
        assert root_shell(lab, node, f"{python} -c 'import colorama'") == ""


@pytest.mark.thorough  # Molecule's idempotence run and the role's unit tests check this for uv's environment
def test_second_run_keeps_venv_and_missing_requirements_file_is_named(lab: Lab) -> None:
    rerun = stand_in(lab, "venv")
    assert unchanged(rerun), rerun.output

    refused = stand_in(lab, "venv", python_env_requirements_files=["/srv/none.txt"])
    assert refused.rc == 2
    assert "no requirements file /srv/none.txt on this node. Copy the code first" in flat_output(refused)


def test_failed_installation_is_shown_and_logged_without_index_token(lab: Lab) -> None:
    arguments: dict[str, Any] = {
        "python_env_manager": "venv",
        "python_env_directory": "/opt/venv",
        "python_env_parts": ["requirements"],
        "python_env_index_url": "http://user:S3CR3T-TOKEN@127.0.0.1:9/simple",
        "python_env_environment": {"PIP_RETRIES": "0"},
        "python_env_requirements": ["nosuchpkg-zzz==9"],
    }
    play = drive.run(STAND_INS, lab.inventory, options=("--limit", "node1,node2", "-vvv"), part="failed", **arguments)
    assert play.rc == 2
    assert "ERROR: No matching distribution found for nosuchpkg-zzz==9" in flat_output(play)
    assert "above" not in flat_output(play).partition("ERROR: No matching")[0].rpartition("failed (exit code 1)")[2]
    log = re.findall(
        r"All of its output is on that node, in (/home/muster/\.muster/logs/[\w.-]+\.log)", flat_output(play)
    )[0]
    assert root_shell(lab, "node1", f"stat --format='%a %U' {log}") == "600 muster"
    assert "No matching distribution found" in root_shell(lab, "node1", f"cat {log}")
    assert "Looking in indexes: http://127.0.0.1:9/simple" in root_shell(lab, "node1", f"cat {log}")
    assert "S3CR3T-TOKEN" not in play.output + root_shell(lab, "node1", f"cat {log}")


@pytest.mark.thorough  # tests/unit/plugins/module_utils/python_env/test_python_env.py also covers the refusals
def test_conda_is_not_installed_without_consent_and_a_hash(lab: Lab) -> None:
    refused = stand_in(lab, "conda", python_env_conda_installer_url="https://repo.anaconda.com/miniconda/x.sh")
    assert refused.rc == 2
    assert "Read them and set python_env_conda_accept_terms to true to accept them" in flat_output(refused)

    refused = stand_in(lab, "conda", python_env_conda_installer_sha256="")
    assert refused.rc == 2
    assert "Set python_env_conda_installer_sha256 to its sha256" in flat_output(refused)


def test_conda_channels_are_queried_only_by_the_first_node(lab: Lab) -> None:
    stand_in(lab, "made")
    digest = root_shell(lab, "node1", "sha256sum /srv/conda/installer.sh")[:64]
    play = stand_in(lab, "conda", python_env_conda_installer_sha256=digest)
    assert play.rc == 0, play.output
    calls = {node: root_shell(lab, node, "cat /opt/conda/conda/calls") for node in NODES}
    assert "--channel nvidia/label/cuda-12.4.0" in calls["node1"] and "cuda" in calls["node1"].split()
    assert "--offline" in calls["node2"] and "--channel" not in calls["node2"]
    for node in NODES:
        assert "init --quiet" in calls[node]
        assert (
            root_shell(lab, node, "/opt/conda/env/bin/python -c 'import packaging; print(packaging.__name__)'")
            == "packaging"
        )


@pytest.mark.thorough
def test_second_run_does_not_change_conda_environment(lab: Lab) -> None:
    digest = root_shell(lab, "node1", "sha256sum /srv/conda/installer.sh")[:64]
    rerun = stand_in(lab, "conda", python_env_conda_installer_sha256=digest)
    assert unchanged(rerun), rerun.output


@pytest.fixture
def gpus(lab: Lab) -> Iterator[None]:
    """Give each node a fake nvidia-smi with an A100."""
    for node in NODES:
        root_shell(
            lab,
            node,
            "printf '#!/bin/sh\\necho A100, 8.0\\n' > /usr/local/bin/nvidia-smi; chmod 755 /usr/local/bin/nvidia-smi",
        )
    yield
    for node in NODES:
        root_shell(lab, node, "rm -f /usr/local/bin/nvidia-smi")


# tests/unit/plugins/module_utils/torch/test_flash_attention.py tests which wheel is chosen; it is installed like all
# others.
@pytest.mark.thorough
def test_flash_attention_is_installed_from_a_matching_wheel(lab: Lab, gpus: None) -> None:
    play = stand_in(lab, "flash")
    assert play.rc == 0, play.output
    for node in NODES:
        assert (
            root_shell(lab, node, "/opt/flash/env/bin/python -c 'import flash_attn; print(flash_attn.__version__)'")
            == "2.8.3"
        )
    requests = root_shell(lab, "node1", "cat /srv/wheels/requests")
    assert requests.count("GET") == 1, "one node has fetched it, once"


@pytest.mark.thorough  # the refusals are in tests/unit/plugins/module_utils/torch/test_flash_attention.py
def test_second_run_keeps_flash_attention_and_mismatch_is_refused(lab: Lab, gpus: None) -> None:
    rerun = stand_in(lab, "flash")
    assert unchanged(rerun), rerun.output

    refused = stand_in(lab, "flash", flash_attention_version="2.7.4.post1")
    assert refused.rc == 2
    assert "The nearest matches: flash-attention 2.8.3 with torch 2.8" in flat_output(refused)

    root_shell(lab, "node2", "printf '#!/bin/sh\\necho Tesla T4, 7.5\\n' > /usr/local/bin/nvidia-smi")
    refused = stand_in(lab, "flash")
    assert refused.rc == 2
    assert (
        "the Tesla T4 GPU has compute capability 7.5, but FlashAttention 2 needs 8.0 or higher (Ampere)"
        in flat_output(refused)
    )

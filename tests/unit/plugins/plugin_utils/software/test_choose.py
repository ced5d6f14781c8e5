"""The choice of Python, torch, CUDA and flash-attention, with reasons, and refusals with compatible alternatives."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._software import choose
from ansible_collections.muster.training.plugins.plugin_utils._software.choose import (
    NodeSoftware,
    SoftwareChoiceError,
    SoftwareRequest,
)
from ansible_collections.muster.training.plugins.plugin_utils._software.tables import FLASH_ATTENTION, TORCH
from ansible_collections.muster.training.plugins.plugin_utils._software.torch_pins import read_pins

P4000, T4, RTX3070 = ("Quadro P4000", (6, 1)), ("Tesla T4", (7, 5)), ("GeForce RTX 3070", (8, 6))
V100, H100, B200 = ("Tesla V100-SXM2-16GB", (7, 0)), ("H100 80GB HBM3", (9, 0)), ("B200", (10, 0))


def node(
    name: str = "a", gpu: Any = None, driver: str = "580.65.06", python: str = "3.10.12", **more: Any
) -> NodeSoftware:
    """Return a machine with Ubuntu 22.04 and the GPUs passed; None stands for a GPU of an unknown model."""
    if gpu is None and "gpus" not in more:
        return NodeSoftware(name, python=python, **{"glibc": "2.35", **more})
    devices = (gpu,) if gpu else ()
    return NodeSoftware(
        name, **{"gpus": 1, "driver": driver, "devices": devices, "python": python, "glibc": "2.35", **more}
    )


def focal(name: str = "a", gpu: Any = None, **more: Any) -> NodeSoftware:
    """Return a machine with Ubuntu 20.04."""
    return node(name, gpu, **{"python": "3.8.10", "glibc": "2.31", **more})


def chosen(*nodes: NodeSoftware, **wishes: Any) -> tuple[str, str, str, str]:
    choice = choose.choose({item.name: item for item in nodes}, SoftwareRequest(**wishes))
    return choice.python, choice.torch, choice.build, choice.flash


def reasons_for(*nodes: NodeSoftware, **wishes: Any) -> list[str]:
    return choose.choose({item.name: item for item in nodes}, SoftwareRequest(**wishes)).reasons


def refused(*nodes: NodeSoftware, **wishes: Any) -> str:
    with pytest.raises(SoftwareChoiceError) as refusal:
        choose.choose({item.name: item for item in nodes}, SoftwareRequest(**wishes))
    return str(refusal.value)


@pytest.mark.parametrize(
    "nodes, wishes, expected",
    [
        # the machines used in the guides
        ([node(gpu=P4000)], {}, ("python3", "2.13.0", "cu126", "")),
        ([node(gpu=T4)], {}, ("python3", "2.13.0", "cu132", "")),
        ([node(gpu=RTX3070, driver="550.54.15")], {}, ("python3", "2.13.0", "cu126", "")),
        ([focal(gpu=P4000)], {}, ("3.12", "2.13.0", "cu126", "")),
        ([node(gpu=RTX3070, driver="550.54.15")], {"cuda": "12.4"}, ("python3", "2.6.0", "cu124", "")),
        ([node("a", T4), node("b", P4000)], {}, ("python3", "2.13.0", "cu126", "")),
        # Pascal and Volta, in some builds only
        ([node(gpu=P4000, driver="535.183.01")], {"torch": "2.8.0"}, ("python3", "2.8.0", "cu126", "")),
        ([node(gpu=V100)], {"torch": "2.10.0"}, ("python3", "2.10.0", "cu128", "")),
        ([node(gpu=V100)], {"torch": "2.11.0"}, ("python3", "2.11.0", "cu126", "")),
        ([node(gpu=B200)], {"torch": "2.7.1"}, ("python3", "2.7.1", "cu128", "")),
        # drivers
        ([node(gpu=T4, driver="470.57.02")], {}, ("python3", "2.7.1", "cu118", "")),
        ([node("a", T4), node("b", T4, driver="570.26")], {}, ("python3", "2.13.0", "cu126", "")),
        ([node(gpu=T4, driver="525.60.13")], {}, ("python3", "2.13.0", "cu126", "")),
        ([node(gpus=2)], {}, ("python3", "2.13.0", "cu132", "")),  # a driver that does not list its GPUs
        ([node(gpu=T4, driver="")], {"cuda": "12.6"}, ("python3", "2.13.0", "cu126", "")),
        ([node("a", T4), node("b")], {}, ("python3", "2.13.0", "cu132", "")),
        # no GPU
        ([node()], {}, ("python3", "2.13.0", "cpu", "")),
        ([node(gpu=T4)], {"cuda": "cpu"}, ("python3", "2.13.0", "cpu", "")),
        ([node()], {"cuda": "12.6"}, ("python3", "2.13.0", "cu126", "")),
        # Pythons
        ([focal()], {}, ("3.12", "2.13.0", "cpu", "")),
        ([focal()], {"manager": "venv"}, ("python3", "2.4.1", "cpu", "")),
        ([focal()], {"torch": "2.3.1"}, ("python3", "2.3.1", "cpu", "")),
        ([focal()], {"python": "python3"}, ("python3", "2.4.1", "cpu", "")),
        ([node(python="3.9.2")], {}, ("3.12", "2.13.0", "cpu", "")),
        ([node(python="3.9.2")], {"manager": "venv"}, ("python3", "2.8.0", "cpu", "")),
        ([node(python="3.15.0")], {}, ("3.12", "2.13.0", "cpu", "")),
        ([node(python="")], {"python": "3.11"}, ("3.11", "2.13.0", "cpu", "")),
        ([node("a", python="3.10.12"), node("b", python="3.12.3")], {}, ("3.12", "2.13.0", "cpu", "")),
        ([node()], {"manager": "conda"}, ("3.12", "2.13.0", "cpu", "")),
        ([node()], {"manager": "conda", "python": "3.10"}, ("3.10", "2.13.0", "cpu", "")),
        # an existing environment keeps its Python
        ([focal(python="3.12.1", has_environment=True)], {}, ("3.12", "2.13.0", "cpu", "")),
        ([focal("a", has_environment=True), node("b")], {}, ("3.8", "2.4.1", "cpu", "")),
        # flash-attention
        ([node(gpu=H100)], {"flash": "auto"}, ("python3", "2.8.0", "cu129", "2.8.3")),
        ([node(gpu=RTX3070, driver="550.54.15")], {"flash": "2.8.3"}, ("python3", "2.8.0", "cu129", "2.8.3")),
        ([focal(gpu=H100)], {"flash": "auto"}, ("3.12", "2.6.0", "cu126", "2.7.4.post1")),
        ([node(gpu=H100, python="3.14.0")], {"flash": "auto"}, ("3.12", "2.8.0", "cu129", "2.8.3")),
        ([node(gpu=B200)], {"flash": "auto"}, ("python3", "2.8.0", "cu129", "2.8.3")),
        ([node(gpu=H100)], {"flash": "auto", "cuda": "11.8"}, ("python3", "2.4.1", "cu118", "2.6.3")),
        # a version that is not in the tables is used as requested
        ([node(gpu=H100)], {"torch": "2.14.1", "cuda": "13.2"}, ("python3", "2.14.1", "cu132", "")),
        ([node(gpu=H100)], {"torch": "2.10.0", "flash": "2.9.0"}, ("python3", "2.10.0", "cu130", "2.9.0")),
    ],
)
def test_expected_software_is_chosen_for_nodes_and_requests(
    nodes: list[NodeSoftware], wishes: dict[str, str], expected: tuple[str, ...]
) -> None:
    assert chosen(*nodes, **wishes) == expected


@pytest.mark.parametrize(
    "nodes, wishes, messages",
    [
        (
            [node(gpu=P4000)],
            {"cuda": "13.0"},
            [
                "torch 2.13.0 for CUDA 13.0 has no kernels for Quadro P4000 (compute capability 6.1) on a.",
                "It is built for sm_75, sm_80,",
                "Set pytorch_cuda to 12.6",
            ],
        ),
        (
            [node("a", P4000), node("b", B200)],
            {},
            ["no kernels for Quadro P4000 (compute capability 6.1) on a", "Remove a from the group"],
        ),
        ([node(gpu=B200)], {"torch": "2.6.0"}, ["torch 2.6.0", "no kernels for B200", "Set pytorch_version to 2.13.0"]),
        (
            [focal()],
            {"manager": "venv", "torch": "2.13.0"},
            [
                "torch 2.13.0 has no wheel for Python 3.8 (python3 of the nodes; found: 3.8.10 on a).",
                "It needs Python 3.10 to 3.14.",
                "Set pytorch_version to 2.4.1",
            ],
        ),
        (
            [focal()],
            {"python": "python3", "torch": "2.13.0"},
            ["set by python_env_python; found: 3.8.10 on a", "Set pytorch_version to 2.4.1"],
        ),
        (
            [focal(has_environment=True)],
            {"torch": "2.13.0"},
            [
                "installed in /opt/muster/env",
                "Set pytorch_version to 2.4.1, or remove it on all nodes (ansible-playbook env.yml -e remove=env)",
            ],
        ),
        (
            [focal(has_environment=True)],
            {"python": "3.12"},
            [
                "the environment in /opt/muster has Python 3.8.10 on a, but python_env_python is 3.12",
                "Remove it on all nodes (ansible-playbook env.yml -e remove=env), and run ansible-playbook site.yml "
                "again to rebuild it",
            ],
        ),
        (
            [node("a", python="3.10.12"), node("b", python="3.12.3")],
            {"manager": "venv"},
            ["python3 is 3.10.12 on a; 3.12.3 on b", "set python_env_manager to uv"],
        ),
        ([node(python="3.7.3")], {"manager": "venv"}, ["has no wheel for Python 3.7"]),
        (
            [node("a", T4, driver="550.54.15"), node("b", T4)],
            {"torch": "2.13.0", "cuda": "13.0"},
            [
                "the NVIDIA driver is too old for torch 2.13.0 with CUDA 13.0: 550.54.15 on a.",
                "It needs 580 or newer.",
                "Set pytorch_cuda to 12.6, or install a newer driver (ansible-playbook site.yml --tags nvidia_driver)",
            ],
        ),
        (
            [node(gpu=T4, driver="470.57.02")],
            {"torch": "2.13.0"},
            ["2.13.0 with CUDA 12.6: 470.57.02 on a", "525.60.13 or newer", "Set pytorch_version to 2.7.1, or install"],
        ),
        (
            [node(gpu=T4, driver="390.157")],
            {},
            ["CUDA 11.7: 390.157 on a", "450.80.2 or newer. Install a newer driver"],
        ),
        ([node("b", T4, driver="")], {}, ["b: no NVIDIA driver is loaded for the GPUs"]),
        (
            [node()],
            {"torch": "2.8.0", "cuda": "12.4"},
            [
                "torch 2.8.0 does not exist for CUDA 12.4",
                "only for CUDA 12.6, 12.8, 12.9",
                "CUDA 12.4 is available for torch 2.4, 2.5, 2.6",
                "  torch 2.13: 12.6, 13.0, 13.2",
            ],
        ),
        ([node()], {"torch": "2.5.1", "cuda": "12"}, ["torch 2.5.1 does not exist for CUDA 12,", "12.1, 12.4"]),
        ([node()], {"cuda": "10.2"}, ["no torch is known for CUDA 10.2", "  torch 2.3: 11.8, 12.1"]),
        ([node()], {"torch": "2.5"}, ["pytorch_version is '2.5'", "such as 2.5.1"]),
        ([node()], {"torch": "1.13.1"}, ["no builds of torch 1.13.1 are known", "pytorch_cuda", "torch 2.3"]),
        (
            [node("a", H100), node("b", T4)],
            {"flash": "auto"},
            ["no kernels for Tesla T4 (compute capability 7.5) on b", "8.0 or higher", "Set flash_attention_enabled"],
        ),
        (
            [node(gpu=H100)],
            {"flash": "auto", "torch": "2.13.0"},
            [
                "flash-attention 2.8.3 has no wheel for torch 2.13.0 with CUDA 13.2 and Python 3.10",
                "It has wheels for torch 2.4 to 2.8 for CUDA 12",
                "Set pytorch_version to 2.8.0, or set flash_attention_build to true",
            ],
        ),
        (
            [node(gpu=H100)],
            {"flash": "2.8.3", "torch": "2.13.0", "cuda": "13.0"},
            ["Set pytorch_cuda to 12.9 and pytorch_version to 2.8.0"],
        ),
        (
            [focal(gpu=H100)],
            {"flash": "2.8.3"},
            ["do not load with glibc 2.31 on a", "glibc 2.32 or newer", "flash_attention_version to 2.7.4.post1"],
        ),
        ([node()], {"flash": "auto"}, ["flash-attention runs only on GPUs", "Set flash_attention_enabled to false"]),
    ],
)
def test_refusal_suggests_compatible_settings(
    nodes: list[NodeSoftware], wishes: dict[str, str], messages: list[str]
) -> None:
    message = refused(*nodes, **wishes)
    for arguments in messages:
        assert arguments in message
    assert re.search(r"\b(Choose|Install|Remove|Set) |must be |It needs ", message), "what to do"


def test_settings_suggested_by_a_refusal_are_compatible() -> None:
    assert chosen(node(gpu=P4000), cuda="12.6")[2] == "cu126"
    assert chosen(node(gpu=H100), flash="2.8.3", torch="2.8.0", cuda="12.9")[3] == "2.8.3"


def test_each_choice_is_explained_with_a_reason() -> None:
    assert reasons_for(focal("a", P4000), focal("b", P4000)) == [
        "Python 3.12: installed by uv; torch 2.13.0 has no wheel for Python 3.8 (python3 of the nodes; found: 3.8.10 "
        "on a, b)",
        "torch 2.13.0: the newest compatible release",
        "CUDA 12.6: the newest build that the drivers support (580.65.06 on a, b) and that has kernels for the GPUs "
        "(Quadro P4000 (6.1) on a, b); torch 2.13.0 for CUDA 13.2 has no kernels for Quadro P4000 (compute capability "
        "6.1) on a, b",
    ]
    assert reasons_for(node(gpu=H100), flash="auto")[1:] == [
        "torch 2.8.0: the newest compatible release; flash-attention 2.8.3 has no wheel for torch 2.13.0 with CUDA "
        "13.2 and Python 3.10",
        "CUDA 12.9: the newest build that the drivers support (580.65.06 on a) and that has kernels for the GPUs "
        "(H100 80GB HBM3 (9.0) on a)",
        "flash-attention 2.8.3: the newest with a wheel for this torch",
    ]
    assert reasons_for(node(), torch="2.8.0", cuda="12.8", python="python3") == [
        "Python 3.10: set by python_env_python",
        "torch 2.8.0: set by pytorch_version",
        "CUDA 12.8: set by pytorch_cuda",
    ]
    assert reasons_for(node())[2] == "the CPU: no node has a GPU"


def test_reasons_stay_short_with_many_nodes() -> None:
    lines = reasons_for(*(focal(f"node{number}", T4) for number in range(64)))
    assert all(len(line) < 400 for line in lines)


def test_companion_packages_match_the_torch_release() -> None:
    assert choose.pip_requirements("2.5.1", ["torchvision", "torchaudio", "numpy<2"]) == [
        "torch==2.5.1",
        "torchvision==0.20.*",
        "torchaudio==2.5.*",
        "numpy<2",
    ]


@pytest.mark.parametrize(
    ("torch", "requirement"),
    [
        ("2.7.1", "torchcodec==0.5.*"),
        ("2.9.0", "torchcodec==0.9.*"),
        ("2.11.0", "torchcodec==0.11.*"),
        ("2.3.1", "torchcodec"),
    ],
)
def test_torchcodec_matches_the_torch_release(torch: str, requirement: str) -> None:
    assert choose.pip_requirements(torch, ["torchcodec"])[1] == requirement


def test_each_flash_attention_release_fits_a_known_torch() -> None:
    for release, flash in FLASH_ATTENTION.items():
        assert set(flash.torches) & set(TORCH), release
        fitting = [
            chosen(node(gpu=RTX3070), flash=release, torch=TORCH[item].newest)
            for item in flash.torches
            if item in TORCH
        ]
        assert all(item[3] == release for item in fitting)


# --- Project requirements ---------------------------------------------------------------------------------------------


def pins(*lines: str) -> Any:
    return tuple(read_pins({"requirements.txt": lines}))


@pytest.mark.parametrize(
    ("lines", "nodes", "expected"),
    [
        (["torch==2.0.1", "torchvision==0.15.2"], [node()], ("python3", "2.0.1", "cpu")),  # guide 001
        (["torch==2.0.1"], [node(python="3.12.3")], ("3.11", "2.0.1", "cpu")),
        (["torch==2.0.1"], [node(gpu=RTX3070, driver="550.54.15")], ("python3", "2.0.1", "cu118")),
        (["torch==2.5.0"], [node()], ("python3", "2.5.0", "cpu")),
        (["torch>=2.1,<2.3"], [node()], ("python3", "2.2.2", "cpu")),
        (["torch~=2.4.0"], [node()], ("python3", "2.4.1", "cpu")),
        (["torchvision==0.20.1"], [node()], ("python3", "2.5.1", "cpu")),
        (["torchaudio<2.8"], [node()], ("python3", "2.7.1", "cpu")),
        (["torchcodec==0.7.0"], [node()], ("python3", "2.8.0", "cpu")),
        (["torchcodec<0.6"], [node()], ("python3", "2.7.1", "cpu")),
        (["torch==2.1.2+cu118"], [node(gpu=RTX3070)], ("python3", "2.1.2", "cu118")),
        # newer than the table, but from a known minor release
        (["torch==2.13.7"], [node()], ("python3", "2.13.7", "cpu")),
        (["torch", "torchvision", "numpy==1.26.1"], [node()], ("python3", "2.13.0", "cpu")),
        (
            ["torch<2.1; sys_platform == 'win32'", "-r more.txt", "# torch==2.0.1"],
            [node()],
            ("python3", "2.13.0", "cpu"),
        ),
    ],
)
def test_torch_is_chosen_to_fit_the_project_requirements(
    lines: list[str], nodes: list[NodeSoftware], expected: tuple[str, ...]
) -> None:
    choice = choose.choose({item.name: item for item in nodes}, SoftwareRequest(pins=pins(*lines)))
    assert (choice.python, choice.torch, choice.build) == expected


def test_decisive_requirement_is_named_as_the_reason() -> None:
    request = SoftwareRequest(pins=pins("torch==2.0.1"))
    assert choose.choose({"a": node()}, request).reasons[1] == (
        "torch 2.0.1: the newest compatible release, since requirements.txt requires torch==2.0.1"
    )


@pytest.mark.parametrize(
    ("line", "wishes", "messages"),
    [
        (
            "torch==1.13.1",
            {},
            ["requirements.txt requires torch==1.13.1, but no known torch release matches", "torch 2.0:"],
        ),
        (
            "torch==2.0.1",
            {"torch": "2.13.0"},
            ["torch==2.0.1, but pytorch_version is 2.13.0. Set pytorch_version to auto"],
        ),
        ("torch==2.1.2+cu118", {}, ["chosen for the CPU. It needs the build cu118. Set pytorch_cuda to 11.8"]),
    ],
)
def test_requirement_that_cannot_be_met_is_refused(line: str, wishes: dict[str, Any], messages: list[str]) -> None:
    with pytest.raises(SoftwareChoiceError) as refusal:
        choose.choose({"a": node()}, SoftwareRequest(pins=pins(line), **wishes))
    for arguments in messages:
        assert arguments in str(refusal.value)


def test_old_torch_release_gets_a_supported_numpy() -> None:
    assert choose.pip_requirements("2.0.1", ["numpy", "torchvision"]) == [
        "torch==2.0.1",
        "numpy<2",
        "torchvision==0.15.*",
    ]
    assert choose.pip_requirements("2.3.0", ["numpy"]) == ["torch==2.3.0", "numpy"]

"""Requirements of a job's Python: importable libraries, working GPUs, compilers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.healthy import Facts, Spoil, cluster, findings, spoilt


def failing(error: str, statement: str = "import flash_attn", certain: bool = True, *names: str) -> Spoil:
    def spoil(facts: dict[str, Facts]) -> None:
        for name in names or ("node2",):
            entry = {"file": "/home/ubuntu/train.py", "line": 7, "statement": statement}
            facts[name]["imports"]["failures"] = [{**entry, "error": error, "certain": certain}]

    return spoil


# Exceptions as raised by the libraries, and part of the remedy.
EXCEPTIONS = [
    (
        "ImportError: \nA module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.2.6 as it may crash.",
        "numpy<2",
    ),
    (
        "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by x.so)",
        "container image",
    ),
    (
        "ImportError: /venv/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda",
        "--tags flash_attention",
    ),
    ("ModuleNotFoundError: No module named 'peft'", "add peft to the project's requirements"),
    ("ModuleNotFoundError: No module named 'google.protobuf'", "add protobuf to the project's requirements"),
    ("ModuleNotFoundError: No module named 'torchvision.transforms.functional_tensor'", "pin a version that has it"),
    (
        "ImportError: cannot import name 'EncoderDecoderCache' from 'transformers' (/venv/transformers/__init__.py)",
        "the installed versions are incompatible",
    ),
    ("SyntaxError in Python 3.8: invalid syntax", "launch_python"),
    ("ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory", "LD_LIBRARY_PATH"),
    ("RuntimeError: something else", "run that import manually"),
]


@pytest.mark.parametrize(("text", "remedy"), EXCEPTIONS)
def test_failed_import_is_shown_verbatim(text: str, remedy: str) -> None:
    facts = cluster(2)
    failing(text)(facts)
    (result,) = findings(facts)
    assert (result.severity, result.id, result.nodes) == ("error", "import-fails", ("node2",))
    assert " ".join(text.split()) in result.problem and "import flash_attn (train.py, line 7)" in result.problem
    assert "/home/ubuntu/venv/bin/python" in result.problem
    assert remedy in result.remedy and "launch_import_test=false" in result.remedy


def missing(facts: dict[str, Facts], *modules: str, certain: bool = True) -> None:
    for node in facts.values():
        node["imports"]["failures"] = [
            {"file": "/home/ubuntu/train.py", "line": line, "statement": f"import {module}", "certain": certain}
            | {"error": f"ModuleNotFoundError: No module named '{module}'"}
            for line, module in enumerate(modules, 1)
        ]


def test_modules_that_are_missing_are_one_finding_with_the_names_of_their_packages() -> None:
    facts = cluster(2)
    missing(facts, "boto3", "omegaconf", "hydra")
    (finding,) = findings(facts)
    assert (finding.severity, finding.id, finding.nodes) == ("error", "import-fails", ("node1", "node2"))
    assert finding.problem == (
        "import boto3 (train.py, line 1), import omegaconf (train.py, line 2), import hydra (train.py, line 3) fail "
        "in /home/ubuntu/venv/bin/python: no modules named boto3, omegaconf, hydra"
    )
    assert finding.remedy.startswith(
        "add boto3, omegaconf, hydra-core to the project's requirements and run ansible-playbook site.yml --tags "
        "pytorch,python_env, or set launch_python to the interpreter that has them; "
    )


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (
            "ModuleNotFoundError: No module named 'einops'",
            "run `/opt/conda/bin/python -m pip install einops` on each node, or set launch_python to the interpreter "
            "that has it; ",
        ),
        ("ImportError: x.so: undefined symbol: y", "(`/opt/conda/bin/python -m pip install PACKAGE` on each node); "),
        (
            "ImportError: cannot import name 'A' from 'b'",
            "pin compatible versions and run `/opt/conda/bin/python -m pip install PACKAGE` on each node; ",
        ),
    ],
)
def test_packages_are_installed_with_the_users_python(error: str, remedy: str) -> None:
    facts = cluster(2)
    failing(error)(facts)
    code = {"path": "/home/ubuntu", "same": True, "counts": {}, "names": {}, "script": True, "required_by": ""}
    facts["node2"]["code"] = {**code, "required": "old"}
    project = {"source": "/me/project", "problem": "", "requirements": "job.yml", "required": "new"}
    result = findings(facts, code=project, interpreter="/opt/conda/bin/python")
    finding = next(finding for finding in result if finding.id == "import-fails")
    assert remedy in finding.remedy and "site.yml" not in finding.remedy and "requirements" not in finding.remedy


def test_requirements_that_are_not_installed_are_installed_first() -> None:
    facts = cluster(2)
    missing(facts, "boto3", "hydra")
    code = {"path": "/home/ubuntu", "same": True, "counts": {}, "names": {}, "script": True, "required_by": ""}
    for node in facts.values():
        node["code"] = {**code, "required": "old"}
    project = {"source": "/me/project", "problem": "", "requirements": "job.yml", "required": "new"}
    failed, changed = findings(facts, code=project)
    assert (failed.id, changed.id) == ("import-fails", "requirements-changed")
    assert failed.remedy.startswith(
        "install the project's requirements, including boto3, hydra-core: ansible-playbook site.yml --tags "
    )


def test_module_with_its_own_role_is_installed_by_it() -> None:
    facts = cluster(2)
    missing(facts, "deepspeed", "yaml")
    (finding,) = findings(facts)
    assert finding.remedy.startswith(
        "ansible-playbook site.yml --tags deepspeed -e deepspeed_enabled=true; add pyyaml to the project's requirements"
    )


def test_modules_that_may_belong_to_the_user_are_not_reported_as_packages() -> None:
    facts = cluster(2)
    missing(facts, "models", "utils", certain=False)
    (finding,) = findings(facts)
    assert finding.severity == "warning" and finding.problem.endswith("so it may still find these modules")
    assert finding.remedy.startswith("if they are libraries: add models, utils to the project's requirements")


def test_other_failures_with_the_same_remedy_are_one_finding() -> None:
    facts = cluster(2)
    missing(facts, "a", "b")
    for failure in [item for node in facts.values() for item in node["imports"]["failures"]]:
        failure["error"] = f"ImportError: {failure['statement'][-1]}.so: undefined symbol: x"
    (finding,) = findings(facts)
    assert finding.problem == (
        "2 imports fail in /home/ubuntu/venv/bin/python: import a (train.py, line 1): ImportError: a.so: undefined "
        "symbol: x; import b (train.py, line 2): ImportError: b.so: undefined symbol: x"
    )


def test_missing_torch_is_not_reported_again_as_a_failed_import() -> None:
    facts = cluster(2)
    missing(facts, "torch", "boto3")
    for node in facts.values():
        node["software"]["packages"].pop("torch")
    torch, failed_import = findings(facts)
    assert (torch.id, failed_import.id) == ("torch-missing", "import-fails")
    assert "import torch" not in failed_import.problem and "boto3" in failed_import.problem


def test_module_that_the_job_may_still_find_is_a_warning() -> None:
    spoil = failing("ModuleNotFoundError: No module named 'models'", "import models", False)
    assert spoilt(spoil) == [("warning", "import-fails", ("node2",))]


def test_imports_that_take_too_long_are_a_warning() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        failing("it did not finish within 60 s")(facts)
        facts["node2"]["imports"]["ended"] = "time"

    assert spoilt(spoil) == [("warning", "import-slow", ("node2",))]


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was "
            "attempted on non supported HW",
            "cuda-compat",
        ),
        ("RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment", "nvidia_uvm"),
        ("RuntimeError: Error 802: system not yet initialized", "nvidia-fabricmanager"),
        ("AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable", "nvidia-smi -c 0"),
        ("RuntimeError: surprise", "dmesg"),
    ],
)
def test_gpu_without_a_working_kernel_is_an_error(text: str, remedy: str) -> None:
    facts = cluster(2, gpu_count=2)
    facts["node1"]["imports"]["cuda"] = [{"gpu": -1, "error": text}]
    facts["node2"]["imports"]["cuda"] = [{"gpu": 1, "error": text}]
    start, kernel = findings(facts)
    assert (start.severity, start.id, start.nodes) == ("error", "cuda-fails", ("node1",))
    assert "CUDA fails to initialize" in start.problem and "GPU 1 cannot run a kernel" in kernel.problem
    assert remedy in start.remedy and text.partition(":")[0] in start.problem


def test_cuda_failure_that_is_explained_is_not_reported_again() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        facts["node1"]["imports"]["cuda"] = [{"gpu": -1, "error": "RuntimeError: 802"}]
        facts["node1"]["links"]["fabric"][0]["state"] = "In Progress"

    assert [finding[1] for finding in spoilt(spoil, 2, 8)] == ["fabric-manager"]


def without(**values: Any) -> Spoil:
    """Return a function that changes compilers in the facts; python_h and features belong to the import test."""

    def spoil(facts: dict[str, Facts]) -> None:
        for node in facts.values():
            for name, value in values.items():
                node["imports" if name in node["imports"] else "compilers"][name] = value

    return spoil


COMPILE = {"features": ["compile"]}
OFFLOAD = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, "train_batch_size": 8}


@pytest.mark.parametrize(
    ("values", "gpu_count", "options", "missing"),
    [
        ({"cc": "", "cxx": "", "nvcc": "", "python_h": False}, 8, {}, []),
        ({"cc": "", **COMPILE}, 8, {}, ["C compiler"]),
        ({"cc": "", **COMPILE}, 0, {}, []),
        ({"cxx": "", **COMPILE}, 0, {}, ["C++ compiler"]),
        ({"python_h": False, **COMPILE}, 8, {}, ["Python.h"]),
        ({"python_h": None, **COMPILE}, 8, {}, []),
        ({"cc": "", **COMPILE}, 8, {"environment": {"TORCHDYNAMO_DISABLE": "1"}}, []),
        ({"cc": ""}, 8, {"args": ["--torch_compile"]}, ["C compiler"]),
        ({"cc": "", **COMPILE}, 8, {"args": ["--compile=False"]}, []),
        ({"cc": "", **COMPILE}, 8, {"args": ["--no-compile"]}, []),
        ({"nvcc": "", "features": ["deepspeed-ops"]}, 8, {}, ["nvcc"]),
        ({"nvcc": "", "features": ["deepspeed-ops"]}, 0, {}, []),
    ],
)
def test_compilers_are_needed_where_the_job_compiles(
    values: dict[str, Any], gpu_count: int, options: dict[str, Any], missing: list[str]
) -> None:
    facts = cluster(2, gpu_count)
    without(**values)(facts)
    result = findings(facts, **options)
    assert {(item.severity, item.id) for item in result} <= {("warning", "compiler-missing")}
    assert [item.problem.partition("there is no ")[2].partition(" on ")[0] for item in result] == missing


def test_remedy_installs_headers_that_base_packages_omits() -> None:
    facts = cluster(2, 8)
    without(python_h=False, **COMPILE)(facts)
    (result,) = findings(facts)
    command = """ansible-playbook site.yml --tags base_packages -e '{"base_packages_extra": ["python3-dev"]}'"""
    assert command in result.remedy


def test_deepspeed_offload_needs_nvcc() -> None:
    facts = cluster(2, 2)
    without(nvcc="")(facts)
    for node in facts.values():
        node["deepspeed_config"] = {"path": "/ds.json", "config": {**OFFLOAD, "train_batch_size": 4}, "error": ""}
    (result,) = findings(facts, args=["--deepspeed", "ds.json"])
    assert result.id == "compiler-missing" and "offload_optimizer" in result.problem

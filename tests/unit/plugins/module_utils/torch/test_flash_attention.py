"""Wheel names of flash-attention's own releases, and the report if no wheel matches."""

from __future__ import annotations

import functools
import http.server
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._torch import flash_attention as flash
from ansible_collections.muster.training.plugins.plugin_utils._software.tables import FLASH_ATTENTION

HERE = {"torch": "2.13.0", "cuda": "12.6", "abi": True, "python": "3.11", "machine": "x86_64"}


@pytest.mark.parametrize(
    "release, torch, cuda, abi, python, machine, name",
    [
        # assets of the releases on GitHub
        (
            "2.8.3",
            "2.8.0",
            "12.8",
            True,
            "3.11",
            "x86_64",
            "flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp311-cp311-linux_x86_64.whl",
        ),
        (
            "2.8.3",
            "2.5.1",
            "12.4",
            False,
            "3.10",
            "x86_64",
            "flash_attn-2.8.3+cu12torch2.5cxx11abiFALSE-cp310-cp310-linux_x86_64.whl",
        ),
        (
            "2.7.4.post1",
            "2.6.0",
            "12.4",
            False,
            "3.13",
            "x86_64",
            "flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp313-cp313-linux_x86_64.whl",
        ),
        (
            "2.6.3",
            "2.4.1",
            "12.1",
            False,
            "3.10",
            "x86_64",
            "flash_attn-2.6.3+cu123torch2.4cxx11abiFALSE-cp310-cp310-linux_x86_64.whl",
        ),
        (
            "2.6.3",
            "2.4.1",
            "11.8",
            True,
            "3.12",
            "x86_64",
            "flash_attn-2.6.3+cu118torch2.4cxx11abiTRUE-cp312-cp312-linux_x86_64.whl",
        ),
        (
            "2.5.8",
            "2.3.0",
            "12.1",
            False,
            "3.9",
            "x86_64",
            "flash_attn-2.5.8+cu122torch2.3cxx11abiFALSE-cp39-cp39-linux_x86_64.whl",
        ),
        (
            "2.9.0",
            "2.10.0",
            "13.0",
            True,
            "3.13",
            "aarch64",
            "flash_attn-2.9.0+cu13torch2.10cxx11abiTRUE-cp313-cp313-linux_aarch64.whl",
        ),
    ],
)
def test_wheel_names_match_the_published_ones(  # noqa: PLR0913
    release: str, torch: str, cuda: str, abi: bool, python: str, machine: str, name: str
) -> None:
    assert flash.wheel_name(release, torch, cuda, abi, python, machine) == name


def test_plus_sign_is_escaped_in_wheel_url() -> None:
    pattern = "https://github.com/Dao-AILab/flash-attention/releases/download/vVERSION"
    assert flash.wheel_url(pattern, "2.8.3", "flash_attn-2.8.3+cu12.whl") == (
        "https://github.com/Dao-AILab/flash-attention/releases/download/v2.8.3/flash_attn-2.8.3%2Bcu12.whl"
    )


def test_nearest_torch_is_suggested_first() -> None:
    assert flash.neighbors("2.8.3", "2.13.0", "12.6")[:2] == [("2.8.3", "2.8", "12"), ("2.8.3", "2.7", "12")]
    assert flash.neighbors("2.7.4.post1", "2.8.0", "12.6")[:2] == [("2.8.3", "2.8", "12"), ("2.8.3", "2.7", "12")]
    assert flash.neighbors("2.8.3", "2.5.1", "12.1")[0] == ("2.7.4.post1", "2.5", "12")
    # the same torch for another CUDA version is preferred over a different torch version
    assert flash.neighbors("2.8.3", "2.8.0", "13.0")[0] == ("2.8.3", "2.8", "12")
    assert flash.neighbors("2.8.3", "2.13.0", "13.0")[:2] == [("2.8.3", "2.8", "12"), ("2.8.3", "2.7", "12")]


def test_old_release_has_no_wheels_for_a_newer_cuda_version() -> None:
    assert flash.wheel_name("2.6.3", "2.4.1", "13.0", True, "3.10", "x86_64") == ""
    assert flash.wheel_name("2.5.8", "2.3.1", "13.0", True, "3.10", "x86_64") == ""


def test_releases_match_the_table_used_to_choose_torch() -> None:
    document = {
        release: (
            tuple(".".join(map(str, torch)) for torch in item.torches),
            {str(major): tag for major, tag in item.cudas.items()},
            ".".join(map(str, item.glibc)),
        )
        for release, item in FLASH_ATTENTION.items()
    }
    assert document == flash.RELEASES
    assert list(flash.RELEASES) == sorted(document, key=flash.version_tuple, reverse=True)
    for release, (torches, cudas, _glibc) in flash.RELEASES.items():
        for major, tag in cudas.items():
            assert f"+cu{tag}torch{torches[0]}" in flash.wheel_name(release, torches[0], major, True, "3.10", "x86_64")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Provide a server of wheels, and the directory that it serves."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_arguments: Any) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as http_server:
        thread = threading.Thread(target=http_server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http_server.server_address[1]}/vVERSION", tmp_path
        http_server.shutdown()
        thread.join()


def make_request(wheels: str, tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {
        "version": "2.8.3",
        "wheels": wheels,
        "sha256": "",
        "build": False,
        "max_jobs": 0,
        "cuda_home": "",
        "capabilities": ["8.0"],
        "choice_file": str(tmp_path / "choice"),
        **more,
    }


def put(directory: Path, release: str, **more: Any) -> str:
    name: str = flash.wheel_name(release, **{**HERE, **more})
    (directory / f"v{release}").mkdir(exist_ok=True)
    (directory / f"v{release}" / name).touch()
    return name


def test_existing_wheel_is_chosen_and_remembered(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flash, "torch_build", lambda: HERE)
    name = put(server[1], "2.8.3")
    request = make_request(server[0], tmp_path, sha256="ab")
    url = server[0].replace("VERSION", "2.8.3") + "/" + name.replace("+", "%2B")
    assert flash.choose(request)["requirements"] == [f"flash-attn @ {url}#sha256=ab"]
    monkeypatch.setattr(flash, "torch_build", lambda: pytest.fail("asked again"))
    assert flash.choose(request)["requirements"] == [f"flash-attn @ {url}#sha256=ab"]


def test_missing_wheel_is_reported_with_the_nearest_existing_ones(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flash, "torch_build", lambda: HERE)
    with pytest.raises(StepError, match="The nearest matches: none"):
        flash.choose(make_request(server[0], tmp_path))
    put(server[1], "2.7.4.post1", torch="2.6.0")
    put(server[1], "2.8.3", torch="2.7.1")
    put(server[1], "2.8.3", torch="2.8.0", abi=False)  # a wheel for a different ABI than this torch's
    with pytest.raises(StepError) as problem:
        flash.choose(make_request(server[0], tmp_path))
    assert "there is no flash-attention 2.8.3 wheel for torch 2.13.0, CUDA 12.6, Python 3.11" in str(problem.value)
    near = (
        "The nearest matches: flash-attention 2.8.3 with torch 2.7 for CUDA 12; "
        "flash-attention 2.7.4.post1 with torch 2.6 for"
    )
    assert near in str(problem.value)
    assert not (tmp_path / "choice").exists()


def test_wheels_for_an_older_cuda_version_are_nearest_to_a_newer_version(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flash, "torch_build", lambda: {**HERE, "cuda": "13.0"})
    put(server[1], "2.8.3", torch="2.8.0")
    put(server[1], "2.6.3", torch="2.4.0")
    with pytest.raises(StepError, match=r"The nearest matches: flash-attention 2\.8\.3 with torch 2\.8 for CUDA 12; "):
        flash.choose(make_request(server[0], tmp_path))


def test_newest_release_with_a_loadable_wheel_is_chosen(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flash, "torch_build", lambda: {**HERE, "torch": "2.6.0"})
    older = put(server[1], "2.7.4.post1", torch="2.6.0")
    newer = put(server[1], "2.8.3", torch="2.6.0")
    for glibc, name in (("2.35", newer), ("2.31", older)):
        monkeypatch.setattr(flash, "glibc_version", lambda glibc=glibc: glibc)
        assert flash.choose_uncached(make_request(server[0], tmp_path, version="auto"))["summary"] == name
    with pytest.raises(StepError, match=r"there is no flash-attention 2\.8\.3 wheel for .*, glibc 2\.31 in http"):
        flash.choose_uncached(make_request(server[0], tmp_path, version="2.8.3"))
    monkeypatch.setattr(flash, "torch_build", lambda: HERE)
    with pytest.raises(
        StepError, match=r"there is no flash-attention 2\.8\.3 or 2\.7\.4\.post1 or .* wheel for torch 2\.13"
    ):
        flash.choose_uncached(make_request(server[0], tmp_path, version="auto"))


def test_unreachable_server_is_an_error_even_if_building_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flash, "torch_build", lambda: HERE)
    with pytest.raises(StepError, match="cannot reach .* from the first node"):
        flash.choose(make_request("http://127.0.0.1:9/vVERSION", tmp_path, build=True))


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return path


def test_allowed_build_sets_compiler_jobs_and_architectures(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flash, "torch_build", lambda: HERE)
    monkeypatch.setattr(flash, "free_memory", lambda: 50 * 10**9)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    program(tmp_path / "cuda" / "bin" / "nvcc", "echo 'Cuda compilation tools, release 12.6, V12.6.20'")
    request = make_request(
        server[0], tmp_path, build=True, cuda_home=str(tmp_path / "cuda"), capabilities=["9.0", "8.0"]
    )
    choice = flash.choose(request)
    assert choice["requirements"] == ["flash-attn==2.8.3"]
    assert choice["environment"] == {
        "CUDA_HOME": str(tmp_path / "cuda"),
        "MAX_JOBS": "2",
        "NVCC_THREADS": "4",
        "FLASH_ATTN_CUDA_ARCHS": "80;90",
    }
    assert "--no-build-isolation" in choice["options"]
    assert flash.choose({**request, "max_jobs": 7, "version": "auto"})["environment"]["MAX_JOBS"] == "7"


def test_compiler_for_a_different_cuda_version_is_refused(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "nvcc", "echo 'Cuda compilation tools, release 11.8, V11.8.89'")
    with pytest.raises(StepError, match=r"no nvcc for CUDA 12 on the first node \(found: 11\.8 in "):
        flash.find_compiler("12.6", str(tmp_path))


@pytest.mark.parametrize("memory, processors, jobs", [(10, 64, 1), (64, 64, 3), (500, 8, 4), (2000, 128, 64)])
def test_build_jobs_are_limited_by_memory_and_processors(memory: int, processors: int, jobs: int) -> None:
    assert flash.jobs(memory * 10**9, processors) == jobs


def test_gpus_that_are_too_old_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert flash.capabilities({}) == {"capabilities": [], "changed": False}
    program(tmp_path / "bin" / "nvidia-smi", "echo 'NVIDIA H100 80GB HBM3, 9.0'; echo 'NVIDIA A100, 8.0'")
    assert flash.capabilities({}) == {"capabilities": ["8.0", "9.0"], "changed": False}
    program(tmp_path / "bin" / "nvidia-smi", "echo 'Tesla T4, 7.5'")
    with pytest.raises(
        StepError,
        match=r"the Tesla T4 GPU has compute capability 7\.5, but FlashAttention 2 needs 8\.0 or higher \(Ampere\)",
    ):
        flash.capabilities({})


def test_failing_nvidia_smi_does_not_mean_that_gpus_are_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    smi = tmp_path / "bin" / "nvidia-smi"
    program(smi, "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    with pytest.raises(
        StepError, match=r"nvidia-smi fails: .*version mismatch, so it is unknown whether this node's GPUs support"
    ):
        flash.capabilities({})
    program(smi, "exit 9")
    with pytest.raises(StepError, match=r"nvidia-smi fails: code 9, so it is unknown whether "):
        flash.capabilities({})
    program(smi, "exec sleep 60")
    run = subprocess.run

    def run_briefly(arguments: list[str], **more: Any) -> Any:
        return run(arguments, check=more.pop("check"), **{**more, "timeout": 0.2})

    monkeypatch.setattr(subprocess, "run", run_briefly)
    with pytest.raises(StepError, match=r"nvidia-smi did not respond within 60 s, so it is unknown whether "):
        flash.capabilities({})


def test_torch_is_queried_if_the_driver_cannot_tell_capabilities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    program(tmp_path / "bin" / "nvidia-smi", "echo 'Field \"compute_cap\" is not a valid field to query.'; exit 2")
    torch = MagicMock()
    monkeypatch.setitem(sys.modules, "torch", torch)
    torch.cuda.device_count.return_value = 2
    torch.cuda.get_device_name.return_value = "NVIDIA A100-SXM4-40GB"
    torch.cuda.get_device_capability.return_value = (8, 0)
    assert flash.capabilities({}) == {"capabilities": ["8.0"], "changed": False}
    torch.cuda.get_device_capability.return_value = (7, 0)
    with pytest.raises(StepError, match=r"has compute capability 7\.0, but FlashAttention 2 needs 8\.0 or higher"):
        flash.capabilities({})
    torch.cuda.is_available.return_value = False
    with pytest.raises(
        StepError, match="nvidia-smi is too old to report the compute capability, and torch sees no GPU"
    ):
        flash.capabilities({})


def test_import_without_a_gpu_is_verified_again_once_a_gpu_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch, flash_attn = MagicMock(), MagicMock(__version__="2.8.3")
    for name, module in (("torch", torch), ("flash_attn", flash_attn), ("flash_attn_2_cuda", MagicMock())):
        monkeypatch.setitem(sys.modules, name, module)
    difference = flash_attn.flash_attn_func.return_value.float.return_value.__sub__.return_value
    difference.abs.return_value.max.return_value.item.return_value = 0.001
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    torch.cuda.is_available.return_value = False
    inputs = {"key": "k", "marker": str(tmp_path / "marker")}
    summaries = [flash.verify(inputs)["summary"] for _time in range(2)]
    assert summaries == ["flash-attention 2.8.3 imported", "imported before, without a GPU"]
    program(tmp_path / "bin" / "nvidia-smi", "echo 'NVIDIA A100, 8.0'")
    torch.cuda.is_available.return_value = True
    summaries = [flash.verify(inputs)["summary"] for _time in range(2)]
    assert summaries[0].endswith(", differs by 0.0010 from torch's attention")
    assert summaries[1] == "verified before"
    assert "imported" in flash.verify({**inputs, "key": "another"})["summary"]


def test_main_runs_the_named_step_and_reports_its_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(inputs: dict[str, Any]) -> dict[str, Any]:
        raise StepError(f"asked for {inputs}")

    monkeypatch.setitem(flash.STEPS, "prove", refuse)
    monkeypatch.setitem(flash.STEPS, "gpus", lambda inputs: {"capabilities": [], **inputs})
    assert flash.main({"step": "gpus", "a": 1}) == {"capabilities": [], "a": 1}
    with pytest.raises(SystemExit):
        flash.main({"step": "prove", "key": "k"})
    assert "asked for {'key': 'k'}" in capsys.readouterr().out

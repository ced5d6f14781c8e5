"""Resources of a node that a job's variables and arguments refer to, read on this machine."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._facts import job_needs


def no_mount(_path: str) -> str:
    return ""


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        (["--resume", "ckpt/last.pt"], {"--resume": "ckpt/last.pt"}),
        (["--resume_from_checkpoint=/mnt/c"], {"--resume_from_checkpoint": "/mnt/c"}),
        (["--load-checkpoint", "a.ckpt"], {"--load-checkpoint": "a.ckpt"}),
        (["--resume", "auto", "--checkpoint-every", "10"], {}),
        (["--resume"], {}),
        (["--resume", "--epochs", "3"], {}),
        (["--load", "s3://bucket/x"], {}),
        (["--loader", "x/y"], {}),
    ],
)
def test_checkpoints_are_read_from_the_arguments(arguments: list[str], result: dict[str, str]) -> None:
    assert job_needs.checkpoint_arguments(arguments) == result


def test_deepspeed_shards_are_counted_in_the_latest_checkpoint(tmp_path: Path) -> None:
    step = tmp_path / "global_step20"
    step.mkdir()
    (tmp_path / "latest").write_text("global_step20\n")
    for rank in (0, 1, 5):
        (step / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").touch()
    (step / "mp_rank_00_model_states.pt").touch()
    facts = job_needs.read_checkpoints(["--load", f"./{tmp_path.name}"], str(tmp_path.parent), no_mount)
    assert facts["--load"] == {"path": str(tmp_path), "exists": True, "readable": True, "shards": [0, 1, 5]}
    (tmp_path / "latest").write_text("../../etc")
    assert job_needs.read_checkpoint(str(tmp_path))["shards"] == []
    assert not job_needs.read_checkpoint(str(tmp_path / "absent"))["exists"]
    assert job_needs.read_checkpoints(["--load", "/mnt/x"], "/", lambda _path: "/mnt") == {}


def test_cache_locations_are_the_libraries_cache_directories(tmp_path: Path) -> None:
    variables = {"HF_HOME": str(tmp_path / "hf"), "XDG_CACHE_HOME": "/absent/cache"}
    caches = job_needs.read_caches(variables, str(tmp_path), "me", no_mount)
    assert caches["HF_HOME"]["path"] == str(tmp_path / "hf") and caches["HF_HOME"]["explicit"]
    assert caches["HF_HOME"]["existing"] == str(tmp_path) and caches["HF_HOME"]["writable"]
    assert caches["TORCHINDUCTOR_CACHE_DIR"]["path"] == "/tmp/torchinductor_me"
    assert not caches["TORCH_HOME"]["explicit"]
    assert job_needs.read_caches({}, "/h", "me", no_mount)["HF_HOME"]["path"] == "/h/.cache/huggingface"
    moved = job_needs.read_caches({"XDG_CACHE_HOME": "/x"}, "/h", "me", no_mount)
    assert moved["HF_HOME"]["path"] == "/x/huggingface"
    assert "HOME" not in job_needs.read_caches({}, "/h", "me", lambda path: path if path == "/h" else "")


def test_file_instead_of_a_cache_directory_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "hf").touch()
    assert not job_needs.describe_directory(str(tmp_path / "hf" / "hub"))["writable"]


def test_compilers_checked_are_the_ones_that_the_job_uses(tmp_path: Path) -> None:
    for name in ("gcc", "mycc"):
        (tmp_path / name).touch(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").touch(0o755)
    here = str(tmp_path)
    assert job_needs.read_compilers({}, here) | {"nvcc": ""} == {"cc": f"{here}/gcc", "cxx": "", "nvcc": ""}
    configured = job_needs.read_compilers({"CC": "mycc", "CUDA_HOME": here}, here)
    assert configured == {"cc": f"{here}/mycc", "cxx": "", "nvcc": f"{here}/bin/nvcc"}


def test_missing_hub_models_are_listed(tmp_path: Path) -> None:
    arguments = ["--model_name_or_path", "org/model", "--dataset=org/data", "--lr", "1/2", "--output_dir", "a/b"]
    assert job_needs.hub_models(arguments) == {"--model_name_or_path": "org/model", "--dataset": "org/data"}
    caches = {"HF_HOME": {"path": str(tmp_path)}}
    (tmp_path / "hub" / "models--org--model" / "snapshots").mkdir(parents=True)
    assert job_needs.missing_hub_models(arguments, "/", caches) == {"--dataset": "org/data"}
    (tmp_path / "org" / "data").mkdir(parents=True)
    assert job_needs.missing_hub_models(arguments, str(tmp_path), caches) == {}


@pytest.mark.parametrize(
    ("arguments", "names", "text", "expected"),
    [
        ([], set(), "import torch\n", False),
        ([], set(), "import wandb\nwandb.init(project='x')\n", True),
        ([], set(), "import wandb\nif args.wandb:\n        wandb.init()\n", False),
        ([], set(), "try:\n    import wandb\nexcept ImportError: pass\nwandb.init()\n", False),
        (["--report_to", "wandb"], set(), "", True),
        (["--report_to=none"], set(), "", False),
    ],
)
def test_wandb_is_needed_only_if_the_job_certainly_uses_it(
    arguments: list[str], names: set[str], text: str, expected: bool
) -> None:
    assert job_needs.uses_wandb(arguments, names, text) == expected


def test_node_credentials_come_from_its_profile(tmp_path: Path) -> None:
    assert job_needs.aws_credentials({}, str(tmp_path)) == {"source": "", "expires": ""}
    (tmp_path / ".aws").mkdir()
    path = tmp_path / ".aws" / "credentials"
    path.write_text(
        "[default]\naws_access_key_id = A\naws_secret_access_key = secret%x\n"
        "[temporary]\naws_access_key_id = B\naws_session_token = T\nexpiration = 2026-11-27T12:00:00Z\n"
    )
    assert job_needs.aws_credentials({}, str(tmp_path)) == {"source": str(path), "expires": ""}
    temporary = job_needs.aws_credentials({"AWS_PROFILE": "temporary"}, str(tmp_path))
    assert temporary == {"source": str(path), "expires": "2026-11-27T12:00:00Z"}
    path.write_text("no section")
    assert job_needs.aws_credentials({}, str(tmp_path)) == {"source": "", "expires": ""}


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://huggingface.co", ("huggingface.co", 443)),
        ("http://10.0.0.5:9000/x", ("10.0.0.5", 9000)),
        ("https://[fd00::1]:8443", ("fd00::1", 8443)),
        ("huggingface.co", ("", 0)),
    ],
)
def test_service_host_is_taken_from_its_url(url: str, target: tuple[str, int]) -> None:
    assert job_needs.endpoint(url) == target


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Serve metadata like EC2: first a token, then the role."""
    replies = [b"HTTP/1.1 200 OK\r\n\r\ntoken", b"HTTP/1.1 200 OK\r\n\r\nmy-role"]
    server = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setattr(job_needs, "METADATA", server.getsockname())
    monkeypatch.setattr(job_needs, "METADATA_TIMEOUT", 10.0)

    def serve() -> None:
        for reply in replies:
            with server.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(reply)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield replies
    thread.join(10)
    server.close()


def test_machine_role_counts_as_credentials(metadata: list[bytes]) -> None:
    assert job_needs.has_machine_role()


def test_machine_without_a_role_has_no_credentials(metadata: list[bytes]) -> None:
    metadata[1] = b"HTTP/1.1 404 Not Found\r\n\r\nnone"
    assert not job_needs.has_machine_role()


def services(arguments: list[str], environment: dict[str, str], names: list[str], home: Path) -> dict[str, Any]:
    request = {"environment": environment, "names": [*environment, *names]}
    locations = {"directory": str(home), "home": str(home), "script_text": ""}
    return job_needs.ServiceQuery(request, arguments, locations, {}).result()


def test_only_services_that_the_job_needs_are_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_needs, "METADATA_TIMEOUT", 0.01)
    assert services([], {}, [], tmp_path) == {"models": {}, "buckets": []}
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        model = ["--model", "org/model"]
        reachable = services(model, {"HF_ENDPOINT": url}, [], tmp_path)
        assert reachable["hub"] == {"host": "127.0.0.1", "error": ""}
        assert "hub" not in services(model, {"HF_ENDPOINT": url, "HF_HUB_OFFLINE": "1"}, [], tmp_path)
        assert "hub" not in services(model, {"HF_ENDPOINT": url}, ["HTTPS_PROXY"], tmp_path)
        bucket = services(["s3://data/x", "--to=s3://out"], {"AWS_ENDPOINT_URL": url}, ["AWS_ACCESS_KEY_ID"], tmp_path)
        assert bucket["buckets"] == ["data", "out"] and bucket["s3"]["error"] == ""
        assert bucket["credentials"] == {"source": "", "expires": "", "known": True}
    refused = services(model, {"HF_ENDPOINT": url}, [], tmp_path)
    assert "Connection refused" in refused["hub"]["error"]
    wandb = services(["--report_to", "wandb"], {"WANDB_BASE_URL": url}, [], tmp_path)["wandb"]
    assert not wandb["netrc"] and wandb["error"]
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password k\n")
    os.chmod(tmp_path / ".netrc", 0o600)
    assert services(["--report_to", "wandb"], {"WANDB_BASE_URL": url}, [], tmp_path)["wandb"]["netrc"]
    assert "wandb" not in services(["--report_to", "wandb"], {"WANDB_MODE": "offline"}, [], tmp_path)

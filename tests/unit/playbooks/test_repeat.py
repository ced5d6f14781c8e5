"""A run is repeated exactly, even if its environment was removed and its code changed; otherwise nothing is started."""

from __future__ import annotations

import functools
import hashlib
import http.server
import importlib.util
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._python_env import steps
from tests.unit.plugins.module_utils.python_env.test_solve import REQUEST
from tests.unit.two_nodes import two_nodes
from tests.unit.typed import typed
from tests.unit.wheel_index import add_wheel, store_pip

pytestmark = pytest.mark.one_core  # needs torch

SECRET = "sekret-value"
JOB = """
import json, os
import torch, toydata
torch.manual_seed(int(os.environ["PYTHONHASHSEED"]))
model, x = torch.nn.Linear(8, 1), torch.randn(64, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _step in range(20):
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("MUSTER_RESULT " + json.dumps({"loss": loss.item(), "toydata": toydata.VERSION}), flush=True)
"""
PIP = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_CACHE_DIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Request handler that serves files without logging."""

    def log_message(self, *_arguments: Any) -> None:
        """Discard the message."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a package index with pip and two releases of a package."""
    directory = tmp_path / "index"
    (directory / "pip").mkdir(parents=True)
    for version in ("1.0", "1.1"):
        add_wheel(directory, "toydata", version)
    pip = store_pip(directory / "pip")
    digest = hashlib.sha256(pip.read_bytes()).hexdigest()
    (directory / "pip" / "index.html").write_text(f'<a href="{pip.name}#sha256={digest}">{pip.name}</a>')
    handler = functools.partial(QuietHandler, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def environment(tmp_path: Path, index: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of an environment that the role's steps created with the older release."""
    for name, value in PIP.items():
        monkeypatch.setenv(name, value)
    home = tmp_path / "muster" / "envs" / "toy"
    pip = next((tmp_path / "index" / "pip").glob("*.whl"))
    (home / "store").mkdir(parents=True)
    shutil.copy2(pip, home / "store")
    urls = {"directory": str(home), "index_url": index, "torch_index_url": ""}
    layer = {"layer": "requirements", "order": 20, "requirements": ["toydata==1.0"]}
    request = {**REQUEST, **urls, **layer, "pip_version": pip.name.split("-")[1]}
    lock = steps.run_step({**request, "step": "solve"})["lock"]
    steps.run_step({**request, "step": "install", "lock": lock})
    return home


def create_checkout(directory: Path) -> Path:
    """Create a checkout whose script has an uncommitted change."""
    code = directory / "toy"
    code.mkdir()
    (code / "train.py").write_text(JOB.replace("range(20)", "range(5)"))
    command = "git init -q && git add . && git -c user.email=me@example.org -c user.name=me commit -qm first"
    subprocess.run(command, shell=True, cwd=code, check=True)
    (code / "train.py").write_text(JOB)
    return code


def launch(directory: Path, *options: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    extra = [option for value in options for option in ("-e", value)]
    command = ["ansible-playbook", "muster.training.launch", "-i", "machines.yml", *extra, "-e", json.dumps(variables)]
    return typed(directory, command, **PIP)


def document(directory: Path, run: str, name: str) -> Any:
    return json.loads((directory / "runs" / run / name).read_text())


@pytest.mark.one_core
def test_run_is_repeated_after_its_environment_is_removed_and_its_code_changed(
    tmp_path: Path, index: str, environment: Path
) -> None:
    code = create_checkout(tmp_path)
    two_nodes(
        tmp_path,
        78,
        launch_nnodes=1,
        launch_report=False,
        launch_import_test=False,
        launch_python=str(environment / "env" / "bin" / "python"),
        python_env_directory=str(environment.parents[1]),
        python_env_name="toy",
        python_env_manager="venv",
        python_env_index_url=index,
        python_env_space=0,
        code_source=str(code),
        code_directory=str(tmp_path / "on_the_node" / "toy"),
    )
    torch = importlib.util.find_spec("torch")
    assert torch is not None and torch.origin is not None
    variables = {"PYTHONPATH": str(Path(torch.origin).parents[1]), "PYTHONHASHSEED": "7", "API_TOKEN": SECRET}
    settings = {"launch_script": "train.py", "launch_launcher": "env", "launch_environment": variables}
    first = launch(tmp_path, run_id="first", **settings)
    assert first.returncode == 0, first.stdout
    assert document(tmp_path, "first", "result.json")["job_results"]["toydata"] == "1.0"
    for name in ("snapshot.json", "code.patch"):
        assert SECRET not in (tmp_path / "runs" / "first" / name).read_text()
    assert "+for _step in range(20):" in (tmp_path / "runs" / "first" / "code.patch").read_text()

    shutil.rmtree(environment)
    (code / "train.py").write_text("raise SystemExit(3)\n")
    refused = launch(tmp_path, "like=first", run_id="second")
    assert refused.returncode != 0 and "API_TOKEN" in refused.stdout, refused.stdout
    assert "nothing was started: run first cannot be repeated exactly (setting)" in refused.stdout
    assert not (tmp_path / "runs" / "second").exists() and not environment.exists()

    second = launch(tmp_path, "like=first", run_id="second", launch_environment={"API_TOKEN": SECRET})
    assert second.returncode == 0, second.stdout
    assert "seeds: PYTHONHASHSEED 7" in second.stdout
    before, after = (document(tmp_path, run, "snapshot.json") for run in ("first", "second"))
    assert after["like"] == "first" and after["environment"] == before["environment"]
    assert after["code"]["digest"] == before["code"]["digest"] and after["settings"] == before["settings"]
    messages = [document(tmp_path, run, "result.json")["job_results"] for run in ("first", "second")]
    assert messages[0] == messages[1], "the same loss, to the last digit"
    assert (code / "train.py").read_text() == "raise SystemExit(3)\n"

    compared = typed(
        tmp_path, ["ansible-playbook", "muster.training.diff", "-i", "machines.yml", "-e", "run_id=second"]
    )
    assert compared.returncode == 0, compared.stdout
    assert "no differences are recorded" in compared.stdout and "succeeded" in compared.stdout

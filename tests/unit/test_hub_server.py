"""The fake model hub, tested with the hub's own client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from tests.support.hub_server.faults import HubFault, rate_limit_fault
from tests.support.hub_server.repository import HubRepository
from tests.support.hub_server.server import HubServer

LARGE = bytes(range(256)) * 400
WEIGHTS = "weights/model.safetensors"
FILES = {"config.json": b'{"a": 1}', WEIGHTS: LARGE, "README.md": b"# tiny\n", "empty": b""}
NAME = "org/tiny"
TOKEN = "hf_" + "t" * 20


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        server.add("model", NAME, FILES)
        server.tokens[TOKEN] = set()
        yield server


def snapshot(  # noqa: PLR0913
    hub: HubServer,
    cache: Path,
    name: str = NAME,
    *,
    token: str | bool = False,
    repo_type: str = "model",
    revision: str | None = None,
) -> Path:
    path = huggingface_hub.snapshot_download(
        name, repo_type=repo_type, revision=revision, endpoint=hub.url, cache_dir=cache, token=token
    )
    return Path(path)


def held(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def one_file(hub: HubServer, cache: Path, name: str = "config.json") -> bytes:
    path = huggingface_hub.hf_hub_download(NAME, name, endpoint=hub.url, cache_dir=cache, token=False)
    return Path(path).read_bytes()


def test_snapshot_has_all_files_and_is_not_downloaded_again(hub: HubServer, tmp_path: Path) -> None:
    directory = snapshot(hub, tmp_path)
    assert held(directory) == FILES
    assert directory.name == hub.repositories["model", NAME].refs["main"]
    assert len(hub.storage_requests) == 1, "only the large one lies in the storage"
    hub.requests.clear()
    snapshot(hub, tmp_path)
    assert not [item for item in hub.requests if "/resolve/" in item.path]


def test_dataset_and_revision_with_slash_are_downloaded(hub: HubServer, tmp_path: Path) -> None:
    data = hub.add("dataset", NAME, {"train.csv": b"1,2"})
    data.commit({"train.csv": b"3,4"}, ref="refs/pr/1")
    assert held(snapshot(hub, tmp_path, repo_type="dataset")) == {"train.csv": b"1,2"}
    assert held(snapshot(hub, tmp_path, repo_type="dataset", revision="refs/pr/1")) == {"train.csv": b"3,4"}


def test_file_list_spans_several_pages(hub: HubServer, tmp_path: Path) -> None:
    files = {f"{number:03}.txt": b"%d" % number for number in range(60)}
    hub.add("model", "org/many", files)
    result = huggingface_hub.HfApi(endpoint=hub.url, token=False).list_repo_tree("org/many", recursive=True)
    assert [item.path for item in result] == list(files)


def test_sizes_and_hashes_come_in_one_request(hub: HubServer) -> None:
    info = huggingface_hub.HfApi(endpoint=hub.url, token=False).model_info(NAME, files_metadata=True)
    assert info.siblings
    document = {item.rfilename: (item.size, item.lfs.sha256 if item.lfs else None) for item in info.siblings}
    large = hub.repositories["model", NAME].commits[str(info.sha)]["weights/model.safetensors"]
    assert document == {
        **{name: (len(body), None) for name, body in FILES.items()},
        WEIGHTS: (len(LARGE), large.sha256),
    }
    assert len(hub.requests) == 1


@pytest.mark.parametrize("reset", [False, True])
def test_download_that_is_cut_off_resumes(
    hub: HubServer, tmp_path: Path, reset: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 10000)  # a partial chunk is lost
    hub.storage_faults = [HubFault(cut=70000, times=1, reset=reset)]
    if reset:
        with pytest.raises(Exception, match=r"(?i)reset|peer"):
            one_file(hub, tmp_path, WEIGHTS)
    assert one_file(hub, tmp_path, WEIGHTS) == LARGE
    assert [item for item in hub.ranges if item.startswith("bytes=")] == ([] if reset else ["bytes=70000-"])


def test_too_many_requests_error_has_retry_after(hub: HubServer, tmp_path: Path) -> None:
    hub.faults = [rate_limit_fault(0, method="HEAD", times=1)]
    assert one_file(hub, tmp_path) == FILES["config.json"]
    hub.faults = [rate_limit_fault(77, path="/api/")]
    with pytest.raises(HfHubHTTPError, match="Retry after 77 seconds") as output:
        huggingface_hub.HfApi(endpoint=hub.url, token=False).model_info(NAME)
    assert output.value.response.headers["Retry-After"] == "77"


def gated(hub: HubServer) -> HubRepository:
    return hub.add("model", "org/gated", FILES, gated=True)


def test_gated_model_needs_a_token_with_access(hub: HubServer, tmp_path: Path) -> None:
    gated(hub)
    with pytest.raises(GatedRepoError, match="Please log in") as unknown:
        snapshot(hub, tmp_path, "org/gated")
    with pytest.raises(GatedRepoError, match="not in the authorized list") as forbidden:
        snapshot(hub, tmp_path, "org/gated", token=TOKEN)
    assert (unknown.value.response.status_code, forbidden.value.response.status_code) == (401, 403)
    hub.tokens[TOKEN].add("org/gated")
    assert held(snapshot(hub, tmp_path, "org/gated", token=TOKEN)) == FILES


def test_client_raises_typed_errors_for_refusals(hub: HubServer, tmp_path: Path) -> None:
    with pytest.raises(RepositoryNotFoundError) as missing:
        snapshot(hub, tmp_path, "org/none")
    assert missing.value.response.status_code == 401, "without a token it could be a private one"
    with pytest.raises(RepositoryNotFoundError) as missing:
        snapshot(hub, tmp_path, "org/none", token=TOKEN)
    assert missing.value.response.status_code == 404
    with pytest.raises(RevisionNotFoundError, match="Invalid rev id"):
        snapshot(hub, tmp_path, revision="v9")
    with pytest.raises(EntryNotFoundError):
        one_file(hub, tmp_path, "nothing.bin")
    with pytest.raises(HfHubHTTPError, match="Invalid credentials in Authorization header"):
        huggingface_hub.HfApi(endpoint=hub.url, token="hf_wrong").model_info(NAME)
    assert huggingface_hub.HfApi(endpoint=hub.url, token=TOKEN).whoami()["name"] == "somebody"

"""The first node's program of the role hugging_face: get models and data sets from a hub, in its own cache layout.

    hub.py ask      look up the requested repositories and sizes: at most one request per repository
    hub.py fetch    download the missing files, and list the files for the other nodes

The request is JSON on stdin. Needs huggingface_hub, and the programs of the role stage_data beside it. The library
finds the token in the file `token` in HF_HOME. Each file is verified against the hub's hash.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import functools
import hashlib
import importlib
import json
import os
import re
import shutil
import sys
import threading
import time
from typing import Any, Callable, NamedTuple, TypeVar

from from_node import ChecksumCache
from transfer import TransferError, format_size, read_pieces
from wanted import STAGE_DIRECTORY, is_inside

MARK = "MUSTER-RESULT "
HUB_DIRECTORY = ".muster-hub"
THREADS = 8
RETRY_TIMEOUT = 120.0  # seconds for which the hub may fail or limit requests before the program fails
TRANSIENT_STATUSES = (408, 429, 500, 502, 503, 504)
COMMIT = re.compile(r"[0-9a-f]{40}")
SET_TOKEN = "export HF_TOKEN on the machine that runs ansible-playbook, or set hugging_face_token, and run this again"
Result = TypeVar("Result")


class RepositoryFile(NamedTuple):
    """A file in a repository. Large files have a `sha256`, the others a `blob`, git's hash of the content."""

    path: str
    size: int
    sha256: str
    blob: str


class RepositorySnapshot(NamedTuple):
    """The selected files of one commit of a repository."""

    kind: str
    name: str
    revision: str
    commit: str
    files: tuple[RepositoryFile, ...]

    @property
    def folder(self) -> str:
        """The repository's directory in the cache, named as the library does."""
        return "--".join([f"{self.kind}s", *self.name.split("/")])

    def pointer_path(self, file: RepositoryFile) -> str:
        """Return the path, relative to the cache, at which programs find a file."""
        return f"{self.folder}/snapshots/{self.commit}/{file.path}"


# --- The hub ----------------------------------------------------------------------------------------------------------


def prepare(request: dict[str, Any]) -> None:
    """Set the environment so that the library, once imported, uses this cache and this hub."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"):
        os.environ.pop(name, None)
    os.environ.update(
        HF_HOME=request["home"],
        HF_HUB_CACHE=os.path.join(request["home"], "hub"),
        HF_ENDPOINT=request["endpoint"],
        HF_HUB_DISABLE_PROGRESS_BARS="1",
        HF_HUB_DISABLE_TELEMETRY="1",
        HF_HUB_DISABLE_UPDATE_CHECK="1",
        HF_HUB_DISABLE_SHARED_BLOBS="1",  # otherwise a file may be a link out of the cache
        HF_HUB_DOWNLOAD_TIMEOUT="30",
        HF_HUB_ETAG_TIMEOUT="30",
    )


def error_chain(error: BaseException | None) -> list[BaseException]:
    """Return an error and its causes: often the library's own error only says that a file is not in the cache."""
    errors: list[BaseException] = []
    while error is not None and error not in errors:
        errors.append(error)
        error = error.__cause__ or error.__context__
    return errors


def find_response(error: Exception) -> Any:
    """Return the hub's response that caused an error, or None."""
    responses = (getattr(response, "response", None) for response in error_chain(error))
    return next((response for response in responses if response is not None), None)


def retry_delay(response: Any) -> float:
    """Return how many seconds the hub asks to wait, 0 if it does not say."""
    limit = re.search(r";\s*r=0\s*;\s*t=(\d+)", response.headers.get("RateLimit", ""))
    after = response.headers.get("Retry-After", "")
    return float(limit[1]) if limit else float(after) if after.isdigit() else 0.0


def explain(error: Exception, request: dict[str, Any], item: dict[str, Any]) -> str:
    """Return a permanent error as a message on one line."""
    response, endpoint, name = find_response(error), request["endpoint"], item["name"]
    label = f"{'data set' if item['kind'] == 'dataset' else 'model'} {name}"
    page = f"{endpoint}/{'datasets/' if item['kind'] == 'dataset' else ''}{name}"
    has_token = os.path.exists(os.path.join(request["home"], "token"))
    kinds = {type(cause).__name__ for cause in error_chain(error)}
    for cause in error_chain(error):
        if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
            return f"{request['home']} is full. Free some space and run this again: complete files are kept"
    if response is None:
        reason = " ".join(str(error_chain(error)[-1]).split())
        return (
            f"{endpoint} does not respond: {reason}. Check that this node reaches it, or correct hugging_face_endpoint"
        )
    message = response.headers.get("X-Error-Message", "")
    if "GatedRepoError" in kinds:
        access = "the token's account has not been granted access" if has_token else "no token is set"
        return f"{label} is gated, and {access}. Accept its licence at {page}, then {SET_TOKEN}"
    if response.status_code == 401 and message.startswith("Invalid credentials"):
        return f"{endpoint} does not know the token. Create one at {endpoint}/settings/tokens, {SET_TOKEN}"
    if "RevisionNotFoundError" in kinds:
        return f"{label} has no revision {item['revision']}. Set it to a branch, a tag or a commit of {page}"
    if response.status_code in (401, 404):
        visibility = "the token's account may not see it" if has_token else "it is private and no token is set"
        advice = f"Correct its name (data sets are listed separately), or {SET_TOKEN}"
        return f"{endpoint} has no {label}, or {visibility}. {advice}"
    return (
        f"{label}: {endpoint} answered {response.status_code} {message}".rstrip()
        + ". Check its page, and run this again"
    )


def call_with_retries(call: Callable[[], Result], request: dict[str, Any], item: dict[str, Any]) -> Result:
    """Call the hub, and retry while that may help. Raise TransferError."""
    pause, failing_since = 1.0, 0.0
    while True:
        started = time.monotonic()
        try:
            return call()
        except TransferError:
            raise
        except Exception as error:
            response, message = find_response(error), explain(error, request, item)
            # "Not in the cache" is also a ValueError, so check its cause.
            no_response = response is None and not isinstance(error_chain(error)[-1], (ValueError, TypeError))
            disk_full = any(isinstance(cause, OSError) and cause.errno == errno.ENOSPC for cause in error_chain(error))
            if disk_full or not (no_response or (response is not None and response.status_code in TRANSIENT_STATUSES)):
                raise TransferError(message) from None
            if not failing_since or time.monotonic() - started > 60:  # earlier calls succeeded for a while
                failing_since, pause = time.monotonic(), 1.0
            wait = pause
            if response is not None and response.status_code == 429:
                wait = max(pause, retry_delay(response))
                message = f"{request['endpoint']} accepts no more requests for {wait:.0f} s (429)"
            if time.monotonic() + wait - failing_since > request.get("patience", RETRY_TIMEOUT):
                retry_time = time.strftime("%H:%M:%S UTC", time.gmtime(time.time() + wait))
                advice = f"Run this again after {retry_time}" if "429" in message else "Run this again"
                raise TransferError(f"{message}. {advice}: complete files are kept") from None
            print(f"{message}. Trying again in {wait:.0f} s", flush=True)
            time.sleep(wait)
            pause = min(30.0, 2 * pause)


def look_up_repository(request: dict[str, Any], item: dict[str, Any]) -> RepositorySnapshot:
    """Look up a requested repository in the hub, with one request. Raise TransferError."""
    from huggingface_hub import HfApi

    api = HfApi(endpoint=request["endpoint"])
    info: Any = call_with_retries(
        lambda: api.repo_info(item["name"], repo_type=item["kind"], revision=item["revision"], files_metadata=True),
        request,
        item,
    )
    utils: Any = importlib.import_module("huggingface_hub.utils")
    selected = utils.filter_repo_objects(
        info.siblings or [],
        allow_patterns=item["allow"] or None,
        ignore_patterns=item["ignore"] or None,
        key=lambda sibling: sibling.rfilename,
    )
    files = tuple(
        RepositoryFile(
            str(sibling.rfilename),
            int(sibling.size or 0),
            sibling.lfs["sha256"] if sibling.lfs else "",
            str(sibling.blob_id),
        )
        for sibling in selected
    )
    unsafe = [sibling.path for sibling in files if not is_inside(sibling.path)]
    if unsafe or not COMMIT.fullmatch(str(info.sha)):
        raise TransferError(
            f"{request['endpoint']} names {(unsafe or [info.sha])[0]!r} in {item['name']}, which is invalid. "
            "Nothing was written"
        )
    if not files:
        raise TransferError(
            f"{item['name']} at {item['revision']} has no file that matches the patterns. Correct allow or ignore"
        )
    return RepositorySnapshot(item["kind"], item["name"], item["revision"], str(info.sha), files)


# --- The local cache --------------------------------------------------------------------------------------------------


class HubCache:
    """The library's cache below HF_HOME, and this program's documents about it."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.home = request["home"]
        self.hub = os.path.join(self.home, "hub")
        self.document_directory = os.path.join(self.home, HUB_DIRECTORY)
        for directory in (os.path.join(self.hub, STAGE_DIRECTORY), self.document_directory):
            os.makedirs(directory, mode=0o700, exist_ok=True)
        # The transfer to the other nodes uses the same checksums, so that large files are read only once.
        self.checksums = ChecksumCache(os.path.join(self.hub, STAGE_DIRECTORY, "index.jsonl"))

    def read(self, name: str) -> Any:
        """Return one of the documents, or None if it does not exist."""
        with contextlib.suppress(OSError, ValueError), open(
            os.path.join(self.document_directory, name), encoding="utf-8"
        ) as stream:
            return json.load(stream)
        return None

    def write(self, name: str, content: Any) -> None:
        """Write one of the documents."""
        write_atomically(os.path.join(self.document_directory, name), json.dumps(content))

    def content_path(self, repository: RepositorySnapshot, file: RepositoryFile) -> str:
        """Return the path of a file's content, relative to the cache."""
        pointer = repository.pointer_path(file)
        path = os.path.join(self.hub, pointer)
        if not os.path.islink(path):
            return pointer
        return os.path.normpath(os.path.join(os.path.dirname(pointer), os.readlink(path)))

    def matches_content(self, repository: RepositorySnapshot, file: RepositoryFile) -> bool:
        """Return whether a file exists with the content that the hub has."""
        name = self.content_path(repository, file)
        path = os.path.join(self.hub, name)
        if not is_inside(name) or not os.path.isfile(path) or os.path.getsize(path) != file.size:
            return False
        if file.sha256:
            return self.checksums.sha256(name, path) == file.sha256
        digest = hashlib.sha1(b"blob %d\0" % file.size)
        for piece in read_pieces(path, 2**20):
            digest.update(piece)
        return digest.hexdigest() == file.blob

    def remove(self, repository: RepositorySnapshot, file: RepositoryFile) -> None:
        """Remove a corrupt file, which the library would otherwise accept."""
        for path in (
            os.path.join(self.hub, self.content_path(repository, file)),
            os.path.join(self.hub, repository.pointer_path(file)),
        ):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def downloaded_bytes(self, repositories: list[RepositorySnapshot]) -> int:
        """Return the bytes of these repositories on this disk, including incomplete files."""
        size = 0
        for folder in {repository.folder for repository in repositories}:
            with contextlib.suppress(OSError), os.scandir(os.path.join(self.hub, folder, "blobs")) as blobs:
                for blob in blobs:
                    with contextlib.suppress(OSError):  # it was just renamed
                        size += blob.stat().st_size
        return size


def write_atomically(path: str, text: str) -> None:
    """Write a file atomically."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as stream:
        stream.write(text)
    os.replace(path + ".new", path)


def parse_repository(fields: Any) -> RepositorySnapshot:
    """Return a repository from a document's fields."""
    kind, name, revision, commit, files = fields
    return RepositorySnapshot(
        kind, name, revision, commit, tuple(RepositoryFile(*file_fields) for file_fields in files)
    )


# --- The two steps ----------------------------------------------------------------------------------------------------


def resolve(request: dict[str, Any]) -> dict[str, Any]:
    """Look up the requested repositories; return their sizes. Cached commits need no look-up: they cannot change."""
    cache = HubCache(request)
    cached: dict[str, Any] = cache.read("known.json") or {}
    current: dict[str, Any] = {}
    for item in request["wanted"]:
        key = json.dumps(item, sort_keys=True)
        if not (COMMIT.fullmatch(item["revision"]) and key in cached):
            cached[key] = look_up_repository(request, item)
        current[key] = cached[key]
    if current != cache.read("known.json"):
        cache.write("known.json", current)
    repositories = [parse_repository(repository) for repository in current.values()]
    sizes: dict[str, int] = {}
    for repository in repositories:
        contents = {file.sha256 or file.blob: file.size for file in repository.files}
        sizes[repository.folder] = max(sizes.get(repository.folder, 0), sum(contents.values()))
    return {"changed": False, "sizes": sizes}


def fetch(request: dict[str, Any]) -> dict[str, Any]:
    """Download the missing files, and list the files that the other nodes need. Raise TransferError."""
    cache = HubCache(request)
    repositories = [parse_repository(repository) for repository in (cache.read("known.json") or {}).values()]
    required = [(repository, file) for repository in repositories for file in repository.files]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        valid = list(pool.map(lambda pair: cache.matches_content(*pair), required))
    missing = [pair for pair, is_valid in zip(required, valid) if not is_valid]
    size = sum(file.size for _repository, file in missing)
    free = shutil.disk_usage(cache.hub).free
    if missing and free < size + request["reserve_gib"] * 2**30:
        raise TransferError(
            f"{cache.home} has {format_size(free)} free, but needs {format_size(size)} plus a reserve of "
            f"{request['reserve_gib']:g} GiB. Free some space, or set hugging_face_home to a directory on a larger disk"
        )
    if missing:
        download(request, cache, missing, size)
    changed = bool(missing)
    names = set()
    for repository in repositories:
        for file in repository.files:
            names |= {repository.pointer_path(file), cache.content_path(repository, file)}
        if not COMMIT.fullmatch(repository.revision):
            name = f"{repository.folder}/refs/{repository.revision}"
            path = os.path.join(cache.hub, name)
            stored = ""
            with contextlib.suppress(OSError), open(path, encoding="utf-8") as stream:
                stored = stream.read()
            if stored != repository.commit:
                write_atomically(path, repository.commit)
                changed = True
            names.add(name)
    if sorted(names) != cache.read("names.json"):
        cache.write("names.json", sorted(names))
    return {"changed": changed, "files": len(required), "fetched": len(missing), "bytes": size}


def download(
    request: dict[str, Any], cache: HubCache, missing: list[tuple[RepositorySnapshot, RepositoryFile]], size: int
) -> None:
    """Download files with the hub's library, several at once, and verify them. Raise TransferError."""
    from huggingface_hub import hf_hub_download

    failed = threading.Event()
    repositories = [repository for repository, _file in missing]

    # Files with the same content share a blob, so handle them one after another.
    contents: dict[tuple[str, str], dict[str, tuple[RepositorySnapshot, RepositoryFile]]] = {}
    for repository, file in missing:
        copies = contents.setdefault((repository.folder, file.sha256 or file.blob), {})
        copies[repository.pointer_path(file)] = (repository, file)

    def fetch_copies(pairs: list[tuple[RepositorySnapshot, RepositoryFile]]) -> None:
        for repository, file in pairs:
            attempts = 0
            while not failed.is_set() and not cache.matches_content(repository, file):
                cache.remove(repository, file)
                attempts += 1
                if attempts > 2:
                    raise TransferError(
                        f"{file.path} of {repository.name} arrived twice with content that does not match its hash on "
                        f"{request['endpoint']}, and was removed. Check this node's disk, and proxies before the hub"
                    )
                item = {"kind": repository.kind, "name": repository.name, "revision": repository.revision}
                call_with_retries(functools.partial(fetch_file, repository, file), request, item)

    def fetch_file(repository: RepositorySnapshot, file: RepositoryFile) -> str:
        return hf_hub_download(
            repository.name,
            file.path,
            repo_type=repository.kind,
            revision=repository.commit,
            cache_dir=cache.hub,
            endpoint=request["endpoint"],
        )

    before = cache.downloaded_bytes(repositories)
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        running = {pool.submit(fetch_copies, list(copies.values())) for copies in contents.values()}
        try:
            while running:
                completed, running = concurrent.futures.wait(
                    running, timeout=5, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in completed:
                    future.result()
                received = max(0, cache.downloaded_bytes(repositories) - before)
                print(f"{format_size(received)} of {format_size(size)} fetched", flush=True)
        except BaseException:
            failed.set()
            for future in running:
                future.cancel()
            raise


def main() -> int:
    """Run one of the two steps."""
    request = json.load(sys.stdin)
    prepare(request)
    try:
        result = {"ask": resolve, "fetch": fetch}[sys.argv[1]](request)
    except TransferError as error:
        print(MARK + json.dumps({"fault": str(error)}), flush=True)
        return 1
    except OSError as error:
        message = f"{error.filename or request['home']}: {error.strerror or error}"
        if error.errno == errno.ENOSPC:
            message = f"{request['home']} is full. Free some space and run this again: complete files are kept"
        print(MARK + json.dumps({"fault": message}), flush=True)
        return 1
    print(MARK + json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

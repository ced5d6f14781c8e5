# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Download models and datasets from a hub to the first node, in the cache layout of the hub's library.

    hub.py ask      look up the requested repositories and sizes: at most one request per repository
    hub.py fetch    download the missing files, and list the files for the other nodes

The request is JSON on stdin. Needs huggingface_hub, which finds the token in the file `token` in HF_HOME. Each file is
verified against the hub's hash.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import functools
import json
import os
import shutil
import sys
import threading
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import (
    StepError,
    print_line,
    run_and_report,
)
from ansible_collections.muster.training.plugins.module_utils._files.content import format_size
from ansible_collections.muster.training.plugins.module_utils._files.text import write
from ansible_collections.muster.training.plugins.module_utils._hub.cache import HubCache
from ansible_collections.muster.training.plugins.module_utils._hub.repositories import (
    COMMIT,
    RepositoryFile,
    RepositorySnapshot,
    parse_repository,
)
from ansible_collections.muster.training.plugins.module_utils._hub.requests import (
    call_with_retries,
    look_up_repository,
    prepare,
)

THREADS = 8


def resolve(request: dict[str, Any]) -> dict[str, Any]:
    """Look up the requested repositories; return their sizes. Cached commits need no look-up: they cannot change."""
    cache = HubCache(request)
    cached: dict[str, Any] = cache.read("known.json") or {}
    current: dict[str, Any] = {}
    for item in request["requested"]:
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
    """Download the missing files, and list the files that the other nodes need. Raise StepError."""
    cache = HubCache(request)
    repositories = [parse_repository(repository) for repository in (cache.read("known.json") or {}).values()]
    required = [(repository, file) for repository in repositories for file in repository.files]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        valid = list(pool.map(lambda pair: cache.matches_content(*pair), required))
    missing = [pair for pair, is_valid in zip(required, valid) if not is_valid]
    size = sum(file.size for _repository, file in missing)
    free = shutil.disk_usage(cache.hub).free
    if missing and free < size + request["reserve_gib"] * 2**30:
        raise StepError(
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
                write(path, repository.commit)
                changed = True
            names.add(name)
    if sorted(names) != cache.read("names.json"):
        cache.write("names.json", sorted(names))
    return {"changed": changed, "files": len(required), "fetched": len(missing), "bytes": size}


def download(
    request: dict[str, Any], cache: HubCache, missing: list[tuple[RepositorySnapshot, RepositoryFile]], size: int
) -> None:
    """Download files with the hub's library, several in parallel, and verify them. Raise StepError."""
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
                    raise StepError(
                        f"{file.path} of {repository.name} was downloaded twice with content that does not match its "
                        f"hash on {request['endpoint']}, and was removed. Check this node's disk, and any proxy "
                        "between it and the hub"
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
                print_line(f"{format_size(received)} of {format_size(size)} fetched")
        except BaseException:
            failed.set()
            for future in running:
                future.cancel()
            raise


def run(command: str, request: dict[str, Any]) -> dict[str, Any]:
    """Run one of the two steps; return its result. Raise StepError."""
    prepare(request)
    try:
        return {"resolve": resolve, "fetch": fetch}[command](request)
    except OSError as error:
        message = f"{error.filename or request['home']}: {error.strerror or error}"
        if error.errno == errno.ENOSPC:
            message = f"{request['home']} is full. Free some space and run this again: complete files are kept"
        raise StepError(message) from None


def main(arguments: list[str]) -> int:
    """Run the step in the first argument; return the exit status."""
    return run_and_report(functools.partial(run, arguments[0]), json.load(sys.stdin))

"""The role hugging_face's work on the first node: get models and data sets from a hub, in its own cache layout.

    hub.py ask      find what is wanted, and its size: at most one request per repository
    hub.py fetch    download what is missing, and list the files for the other nodes

The request is JSON on stdin. Needs huggingface_hub, Python >= 3.8, and the programs of the role stage_data beside it.
The library finds the token in the file `token` in HF_HOME. Each file is verified against the hub's hash.
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

from from_node import Known
from transfer import Fault, in_words, read_pieces
from wanted import OWN as STAGE_OWN
from wanted import inside

MARK = "MUSTER-RESULT "
OWN = ".muster-hub"
THREADS = 8
PATIENCE = 120.0  # seconds for which the hub may fail or ask us to wait before we give up
PASSING = (408, 429, 500, 502, 503, 504)
COMMIT = re.compile(r"[0-9a-f]{40}")
TOKEN = "export HF_TOKEN on the machine that runs ansible-playbook, or set hugging_face_token, and run this again"
Got = TypeVar("Got")


class File(NamedTuple):
    """A file in a repository. Large files have a `sha256`, the others a `blob`, git's hash of the content."""

    path: str
    size: int
    sha256: str
    blob: str


class Repository(NamedTuple):
    """The wanted files of one commit of a repository."""

    kind: str
    name: str
    revision: str
    commit: str
    files: tuple[File, ...]

    @property
    def folder(self) -> str:
        """Its directory in the cache, named as the library does."""
        return "--".join([f"{self.kind}s", *self.name.split("/")])

    def pointer(self, one: File) -> str:
        """The path, below the cache, at which programs find a file."""
        return f"{self.folder}/snapshots/{self.commit}/{one.path}"


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


def chain(error: BaseException | None) -> list[BaseException]:
    """An error and its causes: for most errors, the library only says that a file is not in the cache."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def response_of(error: Exception) -> Any:
    """The hub's answer behind an error; None if there was none."""
    answers = (getattr(one, "response", None) for one in chain(error))
    return next((one for one in answers if one is not None), None)


def seconds_to_wait(answer: Any) -> float:
    """How long the hub asks us to wait, 0 if it does not say."""
    limit = re.search(r";\s*r=0\s*;\s*t=(\d+)", answer.headers.get("RateLimit", ""))
    after = answer.headers.get("Retry-After", "")
    return float(limit[1]) if limit else float(after) if after.isdigit() else 0.0


def explain(error: Exception, request: dict[str, Any], one: dict[str, Any]) -> str:
    """A permanent error in one line."""
    answer, endpoint, name = response_of(error), request["endpoint"], one["name"]
    what = f"{'data set' if one['kind'] == 'dataset' else 'model'} {name}"
    page = f"{endpoint}/{'datasets/' if one['kind'] == 'dataset' else ''}{name}"
    token = os.path.exists(os.path.join(request["home"], "token"))
    kinds = {type(each).__name__ for each in chain(error)}
    for each in chain(error):
        if isinstance(each, OSError) and each.errno == errno.ENOSPC:
            return f"{request['home']} is full. Make room, and run this again: complete files are not fetched again"
    if answer is None:
        words = " ".join(str(chain(error)[-1]).split())
        return f"{endpoint} does not answer: {words}. Check that this node reaches it, or correct hugging_face_endpoint"
    said = answer.headers.get("X-Error-Message", "")
    if "GatedRepoError" in kinds:
        who = "the token's account has not been granted access" if token else "there is no token"
        return f"{what} is gated, and {who}. Accept its licence at {page}, then {TOKEN}"
    if answer.status_code == 401 and said.startswith("Invalid credentials"):
        return f"{endpoint} does not know the token. Make one at {endpoint}/settings/tokens, {TOKEN}"
    if "RevisionNotFoundError" in kinds:
        return f"{what} has no revision {one['revision']}. Correct it: a branch, a tag or a commit of {page}"
    if answer.status_code in (401, 404):
        sees = "the token's account may not see it" if token else "it is private and there is no token"
        return f"{endpoint} has no {what}, or {sees}. Correct its name (data sets are listed separately), or {TOKEN}"
    return (
        f"{what}: {endpoint} answered {answer.status_code} {said}".rstrip() + ". Look at its page, and run this again"
    )


def patiently(call: Callable[[], Got], request: dict[str, Any], one: dict[str, Any]) -> Got:
    """Ask the hub, and retry while that may help. Raises Fault."""
    pause, failing_since = 1.0, 0.0
    while True:
        began = time.monotonic()
        try:
            return call()
        except Fault:
            raise
        except Exception as error:
            answer, words = response_of(error), explain(error, request, one)
            # "Not in the cache" is also a ValueError, so look at its cause.
            no_answer = answer is None and not isinstance(chain(error)[-1], (ValueError, TypeError))
            full = any(isinstance(each, OSError) and each.errno == errno.ENOSPC for each in chain(error))
            if full or not (no_answer or (answer is not None and answer.status_code in PASSING)):
                raise Fault(words) from None
            if not failing_since or time.monotonic() - began > 60:  # it had worked for a while
                failing_since, pause = time.monotonic(), 1.0
            wait = pause
            if answer is not None and answer.status_code == 429:
                wait = max(pause, seconds_to_wait(answer))
                words = f"{request['endpoint']} accepts no more requests for {wait:.0f} s (429)"
            if time.monotonic() + wait - failing_since > request.get("patience", PATIENCE):
                later = time.strftime("%H:%M:%S UTC", time.gmtime(time.time() + wait))
                again = f"Run this again after {later}" if "429" in words else "Run this again"
                raise Fault(f"{words}. {again}: complete files are not fetched again") from None
            print(f"{words}. Trying again in {wait:.0f} s", flush=True)
            time.sleep(wait)
            pause = min(30.0, 2 * pause)


def look_up(request: dict[str, Any], one: dict[str, Any]) -> Repository:
    """Look up a wanted repository in the hub, with one request. Raises Fault."""
    from huggingface_hub import HfApi

    api = HfApi(endpoint=request["endpoint"])
    info: Any = patiently(
        lambda: api.repo_info(one["name"], repo_type=one["kind"], revision=one["revision"], files_metadata=True),
        request,
        one,
    )
    utils: Any = importlib.import_module("huggingface_hub.utils")
    wanted = utils.filter_repo_objects(
        info.siblings or [],
        allow_patterns=one["allow"] or None,
        ignore_patterns=one["ignore"] or None,
        key=lambda each: each.rfilename,
    )
    files = tuple(
        File(str(each.rfilename), int(each.size or 0), each.lfs["sha256"] if each.lfs else "", str(each.blob_id))
        for each in wanted
    )
    wrong = [each.path for each in files if not inside(each.path)]
    if wrong or not COMMIT.fullmatch(str(info.sha)):
        raise Fault(
            f"{request['endpoint']} names {(wrong or [info.sha])[0]!r} in {one['name']}, which is invalid. "
            "Nothing was written"
        )
    if not files:
        raise Fault(f"{one['name']} at {one['revision']} has no file that the patterns allow. Correct allow or ignore")
    return Repository(one["kind"], one["name"], one["revision"], str(info.sha), files)


# --- What lies here ---------------------------------------------------------------------------------------------------


class Cache:
    """The library's cache below HF_HOME, and our own documents about it."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.home = request["home"]
        self.hub = os.path.join(self.home, "hub")
        self.own = os.path.join(self.home, OWN)
        for directory in (os.path.join(self.hub, STAGE_OWN), self.own):
            os.makedirs(directory, mode=0o700, exist_ok=True)
        # The same checksums are sent to the other nodes, so that large files are read only once.
        self.known = Known(os.path.join(self.hub, STAGE_OWN, "index.jsonl"))

    def read(self, name: str) -> Any:
        """One of our documents; None if it does not exist."""
        with contextlib.suppress(OSError, ValueError), open(os.path.join(self.own, name), encoding="utf-8") as stream:
            return json.load(stream)
        return None

    def write(self, name: str, content: Any) -> None:
        """Write one of our documents."""
        replace(os.path.join(self.own, name), json.dumps(content))

    def lies(self, repository: Repository, one: File) -> str:
        """The path of a file's content, below the cache."""
        pointer = repository.pointer(one)
        path = os.path.join(self.hub, pointer)
        if not os.path.islink(path):
            return pointer
        return os.path.normpath(os.path.join(os.path.dirname(pointer), os.readlink(path)))

    def is_right(self, repository: Repository, one: File) -> bool:
        """Whether a file exists with the content that the hub has."""
        name = self.lies(repository, one)
        path = os.path.join(self.hub, name)
        if not inside(name) or not os.path.isfile(path) or os.path.getsize(path) != one.size:
            return False
        if one.sha256:
            return self.known.sha256(name, path) == one.sha256
        digest = hashlib.sha1(b"blob %d\0" % one.size)
        for piece in read_pieces(path, 2**20):
            digest.update(piece)
        return digest.hexdigest() == one.blob

    def forget(self, repository: Repository, one: File) -> None:
        """Remove a wrong file, which the library would otherwise accept."""
        for path in (
            os.path.join(self.hub, self.lies(repository, one)),
            os.path.join(self.hub, repository.pointer(one)),
        ):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def brought(self, repositories: list[Repository]) -> int:
        """Bytes of these repositories on this disk, complete files or not."""
        size = 0
        for folder in {one.folder for one in repositories}:
            with contextlib.suppress(OSError), os.scandir(os.path.join(self.hub, folder, "blobs")) as found:
                for each in found:
                    with contextlib.suppress(OSError):  # it was just renamed
                        size += each.stat().st_size
        return size


def replace(path: str, text: str) -> None:
    """Write a file atomically."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as stream:
        stream.write(text)
    os.replace(path + ".new", path)


def as_read(held: Any) -> Repository:
    """A repository from one of our documents."""
    kind, name, revision, commit, files = held
    return Repository(kind, name, revision, commit, tuple(File(*one) for one in files))


# --- The two steps ----------------------------------------------------------------------------------------------------


def ask(request: dict[str, Any]) -> dict[str, Any]:
    """Find what is wanted. Known commits are not looked up again: they cannot change."""
    cache = Cache(request)
    before: dict[str, Any] = cache.read("known.json") or {}
    known: dict[str, Any] = {}
    for one in request["wanted"]:
        key = json.dumps(one, sort_keys=True)
        if not (COMMIT.fullmatch(one["revision"]) and key in before):
            before[key] = look_up(request, one)
        known[key] = before[key]
    if known != cache.read("known.json"):
        cache.write("known.json", known)
    repositories = [as_read(one) for one in known.values()]
    sizes: dict[str, int] = {}
    for one in repositories:
        contents = {file.sha256 or file.blob: file.size for file in one.files}
        sizes[one.folder] = max(sizes.get(one.folder, 0), sum(contents.values()))
    return {"changed": False, "sizes": sizes}


def fetch(request: dict[str, Any]) -> dict[str, Any]:
    """Download what is missing, and list the files that the other nodes need. Raises Fault."""
    cache = Cache(request)
    repositories = [as_read(one) for one in (cache.read("known.json") or {}).values()]
    wanted = [(one, file) for one in repositories for file in one.files]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        right = list(pool.map(lambda pair: cache.is_right(*pair), wanted))
    missing = [pair for pair, good in zip(wanted, right) if not good]
    size = sum(file.size for _one, file in missing)
    free = shutil.disk_usage(cache.hub).free
    if missing and free < size + request["reserve_gib"] * 2**30:
        raise Fault(
            f"{cache.home} has {in_words(free)} free. Needed: {in_words(size)} and a reserve of "
            f"{request['reserve_gib']:g} GiB. Make room, or set hugging_face_home to a directory on a larger disk"
        )
    if missing:
        download(request, cache, missing, size)
    changed = bool(missing)
    names = set()
    for one in repositories:
        for file in one.files:
            names |= {one.pointer(file), cache.lies(one, file)}
        if not COMMIT.fullmatch(one.revision):
            name = f"{one.folder}/refs/{one.revision}"
            path = os.path.join(cache.hub, name)
            held = ""
            with contextlib.suppress(OSError), open(path, encoding="utf-8") as stream:
                held = stream.read()
            if held != one.commit:
                replace(path, one.commit)
                changed = True
            names.add(name)
    if sorted(names) != cache.read("names.json"):
        cache.write("names.json", sorted(names))
    return {"changed": changed, "files": len(wanted), "fetched": len(missing), "bytes": size}


def download(request: dict[str, Any], cache: Cache, missing: list[tuple[Repository, File]], size: int) -> None:
    """Download files with the hub's library, several at once, and verify them. Raises Fault."""
    from huggingface_hub import hf_hub_download

    failed = threading.Event()
    repositories = [one for one, _file in missing]

    # Files with the same content share a blob, so handle them one after another.
    contents: dict[tuple[str, str], dict[str, tuple[Repository, File]]] = {}
    for one, file in missing:
        same = contents.setdefault((one.folder, file.sha256 or file.blob), {})
        same[one.pointer(file)] = (one, file)

    def bring(pairs: list[tuple[Repository, File]]) -> None:
        for one, file in pairs:
            attempts = 0
            while not failed.is_set() and not cache.is_right(one, file):
                cache.forget(one, file)
                attempts += 1
                if attempts > 2:
                    raise Fault(
                        f"{file.path} of {one.name} arrived twice with other content than {request['endpoint']} says. "
                        "It was removed. Check what is between this node and the hub, and this node's disk"
                    )
                asked = {"kind": one.kind, "name": one.name, "revision": one.revision}
                patiently(functools.partial(call, one, file), request, asked)

    def call(one: Repository, file: File) -> str:
        return hf_hub_download(
            one.name,
            file.path,
            repo_type=one.kind,
            revision=one.commit,
            cache_dir=cache.hub,
            endpoint=request["endpoint"],
        )

    before = cache.brought(repositories)
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        running = {pool.submit(bring, list(same.values())) for same in contents.values()}
        try:
            while running:
                ended, running = concurrent.futures.wait(
                    running, timeout=5, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for each in ended:
                    each.result()
                got = max(0, cache.brought(repositories) - before)
                print(f"{in_words(got)} of {in_words(size)} fetched", flush=True)
        except BaseException:
            failed.set()
            for each in running:
                each.cancel()
            raise


def main() -> int:
    """Run one of the two steps."""
    request = json.load(sys.stdin)
    prepare(request)
    try:
        result = {"ask": ask, "fetch": fetch}[sys.argv[1]](request)
    except Fault as fault:
        print(MARK + json.dumps({"fault": str(fault)}), flush=True)
        return 1
    except OSError as error:
        said = f"{error.filename or request['home']}: {error.strerror or error}"
        if error.errno == errno.ENOSPC:
            said = f"{request['home']} is full. Make room, and run this again: complete files are not fetched again"
        print(MARK + json.dumps({"fault": said}), flush=True)
        return 1
    print(MARK + json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

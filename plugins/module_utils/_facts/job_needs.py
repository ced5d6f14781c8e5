# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inputs on a node that a job's variables and arguments refer to: caches, checkpoints, compilers and services.

Nothing is written. The job's variables exclude secrets; of all others, only the names are known.
"""

from __future__ import annotations

import configparser
import contextlib
import os
import re
import shutil
import socket
import threading
import time

from ansible_collections.muster.training.plugins.module_utils._facts.storage import existing_parent
from ansible_collections.muster.training.plugins.module_utils._files.bounded import list_directory, read_bytes

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

SERVICE_TIMEOUT = 3.0  # seconds; a working service responds in a tenth of that time
METADATA = ("169.254.169.254", 80)  # a cloud service that provides the machine's role
METADATA_TIMEOUT = 0.5
# Cache directory variables, and the default location of each cache.
CACHES = {
    "HF_HOME": "~/.cache/huggingface",
    "TRITON_CACHE_DIR": "~/.triton/cache",
    "TORCHINDUCTOR_CACHE_DIR": "/tmp/torchinductor_{user}",
    "TORCH_HOME": "~/.cache/torch",
    "XDG_CACHE_HOME": "~/.cache",
    "TMPDIR": "/tmp",
}
# Arguments that specify the checkpoint to continue from, or the model to start from.
CHECKPOINT_OPTION = re.compile(r"--?(resume|load|checkpoint|ckpt|init[-_]checkpoint|pretrained)([-_.][\w.-]*)?", re.I)
NO_PATHS = {"true", "false", "auto", "latest", "last", "best", "none", "null", "yes", "no", "allow", "must", "never"}
COMPILERS = ("gcc", "cc", "clang")
CXX_COMPILERS = ("g++", "c++", "clang++")
MAX_CHECKPOINTS = 8
MAX_CHECKPOINT_FILES = 65536
MAX_TEXT = 2**20  # number of characters of a script or of a credentials file
SHARD = re.compile(r"(?:bf16_)?zero_pp_rank_([0-9]+)_mp_rank_[0-9]+_optim_states\.pt\Z")
EXPIRY_KEYS = ("expiration", "aws_session_expiration", "aws_expiration", "x_security_token_expires")


# --- paths -----------------------------------------------------------------------------------------------------------


def describe_directory(path: str) -> dict[str, Any]:
    """Return whether this user may create files in a directory, or create the directory, and the space on its disk."""
    parent = existing_parent(path)
    entry: dict[str, Any] = {"path": path, "existing": parent, "writable": False, "free_bytes": None, "device": None}
    try:
        space = os.statvfs(parent)
        is_writable = os.access(parent, os.W_OK | os.X_OK, effective_ids=True) and not space.f_flag & os.ST_RDONLY
        entry.update(
            writable=os.path.isdir(parent) and is_writable,
            free_bytes=space.f_bavail * space.f_frsize,
            device=os.stat(parent).st_dev,
        )
    except OSError:
        pass
    return entry


def read_caches(
    environment: Mapping[str, str], home: str, user: str, dead_mount: Callable[[str], str]
) -> dict[str, dict[str, Any]]:
    """Return {variable: directory} for the home directory and the caches, without those on dead mounts.

    `explicit`: whether the job sets the variable.
    """
    home = environment.get("HOME") or home
    paths = {"HOME": home, **{name: environment.get(name) or default for name, default in CACHES.items()}}
    if not environment.get("HF_HOME") and environment.get("XDG_CACHE_HOME"):
        paths["HF_HOME"] = f"{environment['XDG_CACHE_HOME']}/huggingface"
    caches = {}
    for name, path in paths.items():
        path = path.replace("{user}", user)
        path = os.path.join(home, path[2:]) if path.startswith("~/") else path
        if path.startswith("/") and not dead_mount(path):
            caches[name] = {**describe_directory(path), "explicit": name in environment}
    return caches


def checkpoint_arguments(arguments: Sequence[str]) -> dict[str, str]:
    """Return {option: path} for the checkpoints in a job's arguments."""
    options: dict[str, str] = {}
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if not CHECKPOINT_OPTION.fullmatch(name):
            continue
        value = value if equals else next(iter(arguments[index + 1 : index + 2]), "")
        is_path = "/" in value or "." in value
        if is_path and not value.startswith("-") and "://" not in value and value.lower() not in NO_PATHS:
            options[name] = value
    return dict(list(options.items())[:MAX_CHECKPOINTS])


def read_checkpoint(path: str) -> dict[str, Any]:
    """Return path, exists, readable, and shards: the ranks whose ZeRO optimizer states are in a DeepSpeed
    checkpoint.
    """
    directory = path
    names: list[str] = []
    with contextlib.suppress(OSError, UnicodeDecodeError):
        directory = os.path.join(path, os.path.basename(read_bytes(f"{path}/latest", 256).decode().strip()))
    with contextlib.suppress(OSError):
        names = list_directory(directory, MAX_CHECKPOINT_FILES) if os.path.isdir(directory) else []
    ranks = [int(match[1]) for match in map(SHARD.match, names) if match]
    return {
        "path": path,
        "exists": os.path.exists(path),
        "readable": os.access(path, os.R_OK, effective_ids=True),
        "shards": sorted(set(ranks)),
    }


def read_checkpoints(
    arguments: Sequence[str], directory: str, dead_mount: Callable[[str], str]
) -> dict[str, dict[str, Any]]:
    """Return {option: checkpoint} for the job's arguments, without those on dead mounts."""
    checkpoints = {}
    for option, value in checkpoint_arguments(arguments).items():
        path = os.path.normpath(os.path.join(directory, os.path.expanduser(value)))
        if not dead_mount(path):
            checkpoints[option] = read_checkpoint(path)
    return checkpoints


def find_program(names: Sequence[str], search_path: str) -> str:
    """Return the path of the first of these programs that exists, or ""."""
    return next((path for path in (shutil.which(name, path=search_path) for name in names) if path), "")


def read_compilers(environment: Mapping[str, str], search_path: str) -> dict[str, str]:
    """Return the paths of the C and C++ compilers and of nvcc, or "" for missing ones."""
    c_names = [environment["CC"]] if environment.get("CC") else COMPILERS
    cxx_names = [environment["CXX"]] if environment.get("CXX") else CXX_COMPILERS
    cuda = environment.get("CUDA_HOME") or environment.get("CUDA_PATH") or "/usr/local/cuda"
    return {
        "cc": find_program(c_names, search_path),
        "cxx": find_program(cxx_names, search_path),
        "nvcc": find_program(["nvcc"], f"{cuda}/bin{os.pathsep}{search_path}"),
    }


# --- services --------------------------------------------------------------------------------------------------------


def hub_models(arguments: Sequence[str]) -> dict[str, str]:
    """Return {option: name} for models and datasets that a job's arguments name in Hub form: OWNER/NAME."""
    names = {}
    for index, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if re.fullmatch(
            r"--?(model|dataset|tokenizer|pretrained[-_]model)([-_](name|id|path|name[-_]or[-_]path))*", option
        ):
            value = value if equals else next(iter(arguments[index + 1 : index + 2]), "")
            if re.fullmatch(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", value):
                names[option] = value
    return names


def missing_hub_models(arguments: Sequence[str], directory: str, caches: Mapping[str, Any]) -> dict[str, str]:
    """Return the entries of hub_models() that are neither a directory of the job nor in the node's cache."""
    hub = os.path.join((caches.get("HF_HOME") or {}).get("path") or "/", "hub")
    missing = {}
    for option, name in hub_models(arguments).items():
        kind = "datasets" if "dataset" in option else "models"
        cached = os.path.join(hub, f"{kind}--{name.replace('/', '--')}", "snapshots")
        if not os.path.isdir(cached) and not os.path.exists(os.path.join(directory, name)):
            missing[option] = name
    return missing


def bucket_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the names of the S3 buckets in a job's arguments."""
    return sorted(
        {match[1] for argument in arguments for match in re.finditer(r"\bs3://([a-z0-9][a-z0-9.-]+)", argument)}
    )


def endpoint(url: str) -> tuple[str, int]:
    """Return a URL's host and port, or ("", 0) if it has none."""
    match = re.match(r"(https?)://(?:[^/@]*@)?(\[[0-9a-fA-F:]+\]|[^/:]+)(?::([0-9]{1,5}))?", url)
    if not match:
        return "", 0
    return match[2].strip("[]"), int(match[3] or (443 if match[1] == "https" else 80))


def aws_credentials(environment: Mapping[str, str], home: str) -> dict[str, Any]:
    """Return the node user's credentials that an AWS library would use: source ("" if none), expires."""
    path = environment.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.join(home, ".aws", "credentials")
    profile = environment.get("AWS_PROFILE") or "default"
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(read_text(path))
    except configparser.Error:
        return {"source": "", "expires": ""}
    if not parser.has_section(profile) or not parser.has_option(profile, "aws_access_key_id"):
        return {"source": "", "expires": ""}
    expires = next((parser.get(profile, key) for key in EXPIRY_KEYS if parser.has_option(profile, key)), "")
    return {"source": path, "expires": expires[:40]}


def has_machine_role() -> bool:
    """Return whether the cloud's metadata service lists a role for this machine."""
    request = "{} {} HTTP/1.0\r\nHost: 169.254.169.254\r\n{}\r\n"
    token = query_metadata(
        request.format("PUT", "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds: 60\r\nContent-Length: 0\r\n")
    )
    header = f"X-aws-ec2-metadata-token: {token}\r\n" if token else ""
    return bool(query_metadata(request.format("GET", "/latest/meta-data/iam/security-credentials/", header)))


def query_metadata(request: str) -> str:
    """Return the first line of the body of a successful reply, or ""."""
    try:
        with socket.create_connection(METADATA, METADATA_TIMEOUT) as connection:
            connection.sendall(request.encode())
            reply = b""
            while len(reply) < 65536:
                data = connection.recv(4096)
                if not data:
                    break
                reply += data
    except OSError:
        return ""
    head, _blank, body = reply.decode("ascii", "replace").partition("\r\n\r\n")
    return body.partition("\n")[0].strip() if re.match(r"HTTP/1\.[01] 200\b", head) else ""


def connect_error(host: str, port: int) -> str:
    """Return why a TCP connection to a service cannot be opened, or ""."""
    try:
        socket.create_connection((host, port), SERVICE_TIMEOUT).close()
    except socket.gaierror as error:
        return f"{host} does not resolve: {error.strerror}"
    except OSError as error:
        return f"{host} port {port}: {error.strerror or error}"
    return ""


class ServiceQuery:
    """Connections to the services that a job needs, started on creation."""

    def __init__(
        self,
        request: Mapping[str, Any],
        arguments: Sequence[str],
        context: Mapping[str, str],
        caches: Mapping[str, Any],
    ) -> None:
        """Start the connections.

        request: `environment`, `names` (of all variables of the job). context: directory, home, script text.
        """
        environment, names = request["environment"], set(request["names"])
        self.deadline = time.monotonic() + SERVICE_TIMEOUT
        self.results: dict[str, dict[str, Any]] = {}
        calls: dict[str, Callable[[], dict[str, Any]]] = {}
        self.models = missing_hub_models(arguments, context["directory"], caches)
        self.buckets = bucket_arguments(arguments)
        uses_proxy = any(name.lower() in ("https_proxy", "http_proxy", "all_proxy") for name in names)
        is_offline = environment.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
        if self.models and not is_offline and not uses_proxy:
            calls["hub"] = self.connection(environment.get("HF_ENDPOINT") or "https://huggingface.co")
        wandb_mode = environment.get("WANDB_MODE", "online")
        if uses_wandb(arguments, names, context["script_text"]) and wandb_mode in ("online", "run") and not uses_proxy:
            calls["wandb"] = self.connection(environment.get("WANDB_BASE_URL") or "https://api.wandb.ai")
        if self.buckets:
            url = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
            if not uses_proxy:
                calls["s3"] = self.connection(url or "https://s3.amazonaws.com")
            credentials = aws_credentials(environment, context["home"])
            has_own = bool(names & {"AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONFIG_FILE"})
            calls["credentials"] = lambda: {
                **credentials,
                "known": has_own or bool(credentials["source"]) or has_machine_role(),
            }
        self.netrc = has_netrc_entry(context["home"], "api.wandb.ai") if "wandb" in calls else False
        self.pending = set(calls)
        # daemon threads, so that a hanging resolver does not block the reply
        self.threads = [threading.Thread(target=self.call, args=item, daemon=True) for item in calls.items()]
        for thread in self.threads:
            thread.start()

    @staticmethod
    def connection(url: str) -> Callable[[], dict[str, Any]]:
        """Return a function that connects to the host in a URL."""
        host, port = endpoint(url)

        def connect() -> dict[str, Any]:
            return {"host": host, "error": connect_error(host, port) if host else "the URL has no host"}

        return connect

    def call(self, name: str, function: Callable[[], dict[str, Any]]) -> None:
        """Store a function's result."""
        self.results[name] = function()

    def result(self) -> dict[str, Any]:
        """Return models, buckets and, if the job needs them, credentials, hub, wandb and s3 (host and error)."""
        for thread in self.threads:
            thread.join(max(0.0, self.deadline - time.monotonic()))
        results = dict(self.results)
        late = {"host": "", "error": f"no reply within {SERVICE_TIMEOUT:.0f} s"}
        results.update((name, late) for name in self.pending - set(results) if name != "credentials")
        if "wandb" in results:
            results["wandb"] = {**results["wandb"], "netrc": self.netrc}
        return {**results, "models": self.models, "buckets": self.buckets}


def uses_wandb(arguments: Sequence[str], names: set[str], script_text: str) -> bool:
    """Return whether a job is certain to log to W&B: an argument says so, or the script imports and starts it."""
    if any(re.search(r"(^|[=,])(wandb|all)\Z", argument) for argument in arguments if "report_to" in argument):
        return True
    following = (arguments[index + 1 : index + 2] for index, entry in enumerate(arguments) if entry == "--report_to")
    if any(value in (["wandb"], ["all"]) for value in map(list, following)):
        return True
    has_import = re.search(r"^(import wandb|from wandb )", script_text, re.MULTILINE)
    return bool(has_import and re.search(r"^(    )?(\w+ = )?wandb\.init\(", script_text, re.MULTILINE))


def has_netrc_entry(home: str, machine: str) -> bool:
    """Return whether a user's .netrc contains a machine's password."""
    return machine in read_text(os.path.join(home, ".netrc"))


def read_text(path: str) -> str:
    """Return the text of a regular file, or "" if it cannot be read. Links are followed; a pipe would block."""
    try:
        if not os.path.isfile(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(MAX_TEXT)
    except OSError:
        return ""

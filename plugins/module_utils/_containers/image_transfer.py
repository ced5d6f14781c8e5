# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container engine on this machine and its copy of an image."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
from typing import Any, Iterator, NamedTuple

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._files.content import compute_sha256

LABEL = "muster.source"  # label of an image that was built here: the hash of its build context
TIMEOUT = 60.0  # seconds within which a working engine responds
MAX_MANIFEST = 2**20  # bytes of an archive's manifest to read
DIGEST = re.compile(r"[0-9a-f]{64}")  # SHA-256 digest by which engines identify an image
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # first bytes of compressed files
FULL = re.compile(r"no space left on device|disk quota exceeded", re.I)
DENIED = re.compile(
    r"unauthorized|authentication required|(?<!permission )denied|forbidden|no basic auth|invalid username", re.I
)
LIMITED = re.compile(r"toomanyrequests|too many requests|rate limit", re.I)
# Messages that three builders print if the image in FROM is not available.
NO_BASE = re.compile(r"pull access denied|failed to resolve source metadata|creating build container", re.I)
UNKNOWN = re.compile(r"manifest unknown|name unknown|manifest for \S+ not found|repository \S+ not found", re.I)
NO_TRUST = re.compile(r"signed by unknown authority|unable to get local issuer|certificate is not trusted", re.I)
NO_TLS = re.compile(r"gave HTTP response to HTTPS", re.I)
NO_ANSWER = re.compile(
    r"connection refused|no such host|no route to host|unreachable|timeout|timed out|deadline exceeded|"
    r"connection reset|temporary failure in name|server misbehaving|\bEOF\b|\b50[0-4]\b|service unavailable",
    re.I,
)


class EngineImage(NamedTuple):
    """An image in the engine. id: its digest in hex. size: unpacked size in bytes. label: see LABEL."""

    id: str
    size: int
    label: str


def error_output(completed: subprocess.CompletedProcess[str]) -> str:
    """Return the end of a failed program's output."""
    text = " ".join((completed.stderr or completed.stdout).split())
    return text[-400:] or f"exit code {completed.returncode}"


def existing_parent(path: str) -> str:
    """Return a directory, or its nearest existing parent directory."""
    while path and not os.path.isdir(path):
        path = os.path.dirname(path)
    return path or "/"


def digest_of(identity: str) -> str:
    """Return an image's digest without the algorithm name, which podman omits."""
    return identity.rpartition(":")[2]


class Engine:
    """docker or podman, run as the current user."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.login: list[str] = []  # options that make the engine use a registry login
        self.environment = dict(os.environ)

    def run(self, *arguments: str, text: str = "", timeout: float | None = None) -> subprocess.CompletedProcess[str]:
        """Run the engine with text on standard input and return the result. Raise StepError if it hangs or fails."""
        try:
            return subprocess.run(
                [self.name, *self.login, *arguments],
                input=text,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=timeout,
                env=self.environment,
            )
        except OSError as error:
            raise StepError(f"{self.name} cannot be run: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise StepError(f"`{self.name} {' '.join(arguments[:2])}` did not respond within {timeout:g} s") from None

    def find(self, name: str) -> EngineImage | None:
        """Return the image with this name or id, or None if it is missing. Raise StepError if the query fails."""
        completed = self.run("image", "inspect", "--format", "{{json .}}", name, timeout=TIMEOUT)
        if completed.returncode:
            if re.search(r"no such image|image not known|not found", completed.stderr, re.I):
                return None
            raise StepError(f"`{self.name} image inspect {name}`: {error_output(completed)}")
        reply = json.loads(completed.stdout)
        # podman prints a list in this format even for one image
        image = reply[0] if isinstance(reply, list) else reply
        labels = (image.get("Config") or {}).get("Labels") or {}
        return EngineImage(digest_of(image["Id"]), int(image.get("Size") or 0), str(labels.get(LABEL, "")))

    def root(self) -> str:
        """Return the directory where the engine keeps images. Raise StepError."""
        info_format = "{{.DockerRootDir}}" if self.name == "docker" else "{{.Store.GraphRoot}}"
        completed = self.run("info", "--format", info_format, timeout=TIMEOUT)
        if completed.returncode:
            raise StepError(f"`{self.name} info`: {error_output(completed)}")
        return completed.stdout.strip()

    def free_space(self) -> tuple[str, int]:
        """Return the directory where the engine keeps images, and its free space in bytes."""
        root = self.root()
        return root, shutil.disk_usage(existing_parent(root)).free

    def unpack_directory(self) -> str:
        """Return the directory where an image being loaded is temporarily unpacked a second time. Raise StepError."""
        if self.name == "docker":
            return self.root()
        completed = self.run("info", "--format", "{{.Store.ImageCopyTmpDir}}", timeout=TIMEOUT)
        # older engines do not report the size
        return (completed.stdout.strip() if completed.returncode == 0 else "") or "/var/tmp"

    def builder(self) -> list[str]:
        """Return the arguments of the build command. Rootless podman requests a cgroup from the user's systemd.

        Without the package dbus-user-session that request fails, and only podman's run command works without a cgroup.
        """
        user = self.name == "podman" and os.geteuid() != 0
        return ["--cgroup-manager=cgroupfs", "build"] if user else ["build"]

    def command_error(self, failure: str, completed: subprocess.CompletedProcess[str]) -> StepError:
        """Return the error for a failed command, with a remedy if one is known."""
        message = error_output(completed)
        return StepError(f"{failure}: {message}. {self.remedy()}" if FULL.search(message) else f"{failure}: {message}")

    def registry_error(
        self, failure: str, registry: str, completed: subprocess.CompletedProcess[str], user: str
    ) -> StepError:
        """Return the error for a request that a registry refused, with a remedy. user: the login, or ""."""
        message = error_output(completed)
        if FULL.search(message):
            return self.command_error(failure, completed)
        return StepError(f"{failure}: {message}. {suggest_remedy(message, registry, user)}".rstrip())

    def build_error(self, failure: str, completed: subprocess.CompletedProcess[str], user: str) -> StepError:
        """Return the error for a failed build, with a remedy if a registry refused the Dockerfile's base image."""
        message = error_output(completed)
        if not (LIMITED.search(message) or (NO_BASE.search(message) and DENIED.search(message))):
            return self.command_error(failure, completed)
        note = (
            ""
            if user
            else ("; set container_image_base to the name after FROM (the login is for that image's registry)")
        )
        return StepError(f"{failure}: {message}. {suggest_remedy(message, '', user)}{note}")

    def remedy(self) -> str:
        """Return the remedy for when the engine's disk is full."""
        if self.name == "docker":
            return (
                "Move Docker's data to a larger disk with `ansible-playbook site.yml --tags docker_data_root "
                "-e docker_data_root_path=/that/disk/docker`, or remove images that no container uses with "
                "`docker image prune --all`"
            )
        # podman refuses to start if root's file has only graphroot
        lines = ['driver = "overlay"', 'graphroot = "/that/disk/containers"']
        file = "~/.config/containers/storage.conf"
        if os.geteuid() == 0:
            lines.append('runroot = "/run/containers/storage"')
            file = "/etc/containers/storage.conf"
        return (
            "Remove images that no container uses with `podman image prune --all`, or use a larger disk by "
            f"writing these lines to {file}: [storage], {', '.join(lines)}"
        )


@contextlib.contextmanager
def temporary_login(engine: Engine, name: str, user: str, password: str, directory: str) -> Iterator[None]:
    """Let the engine pull with a login that is stored in a separate directory and removed afterwards. Raise
    StepError.
    """
    shutil.rmtree(directory, ignore_errors=True)  # left behind by a call that was killed
    if not user:
        yield
        return
    registry = registry_of(name)
    os.mkdir(directory, 0o700)
    try:
        if engine.name == "docker":
            engine.login = ["--config", directory]
        else:
            engine.environment["REGISTRY_AUTH_FILE"] = os.path.join(directory, "auth.json")
        completed = engine.run("login", "--username", user, "--password-stdin", registry, text=password)
        if completed.returncode:
            raise engine.registry_error(f"{registry} rejects the login of {user}", registry, completed, user)
        yield
    finally:
        engine.login = []
        engine.environment.pop("REGISTRY_AUTH_FILE", None)
        shutil.rmtree(directory, ignore_errors=True)


def registry_of(name: str) -> str:
    """Return an image name's registry, following Docker's rules."""
    first, slash, _rest = name.partition("/")
    return first if slash and (re.search(r"[.:]", first) or first == "localhost") else "docker.io"


def suggest_remedy(message: str, registry: str, user: str) -> str:
    """Return the remedy for an error from a registry or from the network connection to it. user: the login, or ""."""
    if UNKNOWN.search(message):
        return "Correct the image's name and tag: the registry does not have this image"
    if LIMITED.search(message):
        hint = "container_image_registry_user and container_image_registry_password: a login raises the limit"
        return "Wait, then run this again" if user else f"Wait, or set {hint}"
    if DENIED.search(message):
        if user:
            return (
                "Correct container_image_registry_user, container_image_registry_password, or the image's name: this "
                "login is not allowed to pull it"
            )
        return "Correct the image's name, or set container_image_registry_user and container_image_registry_password"
    docker_hub = registry == "docker.io"
    host = "registry-1.docker.io" if docker_hub else registry
    if NO_TLS.search(message):
        return (
            f"Give {registry} a TLS certificate, or let the engine use it without TLS: for docker, set "
            f"docker_engine_settings: {{insecure-registries: [{registry}]}}; for podman, set insecure = true in "
            "/etc/containers/registries.conf"
        )
    if NO_TRUST.search(message):
        certificate_path = f"/etc/docker/certs.d/{registry}/ca.crt on this node"
        if docker_hub:  # Docker does not use it for its own registry
            certificate_path = (
                "/usr/local/share/ca-certificates/NAME.crt on this node, run `update-ca-certificates` as root, restart "
                "docker if it is the engine"
            )
        return (
            f"This node does not trust the certificate of {registry}. Copy its CA certificate, or that of the "
            f"proxy in front of it, into {certificate_path}, and run this again"
        )
    if NO_ANSWER.search(message):
        return (
            f"Check whether {registry} is running, and whether this node can reach it with `curl "
            f"https://{host}/v2/`, then run this again. If you do not have a registry, set "
            "container_image_archive to an archive written by `docker save` on another machine"
        )
    return ""


def qualified_name(name: str) -> str:
    """Return an image name with its registry, because podman does not add one."""
    registry = registry_of(name)
    if name.startswith(f"{registry}/"):
        return name
    return f"{registry}/{name if '/' in name else f'library/{name}'}"


# --- Archives and contexts --------------------------------------------------------------------------------------------


def read_archive(path: str) -> list[str]:
    """Return the digests that an engine may use for an archive's image. Raise StepError unless it contains exactly one
    image.
    """
    texts: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = member.name[2:] if member.name.startswith("./") else member.name
                if name in ("manifest.json", "index.json") and member.isfile() and member.size < MAX_MANIFEST:
                    stream = archive.extractfile(member)
                    texts[name] = stream.read() if stream else b""
        configs = [os.path.basename(entry["Config"]) for entry in json.loads(texts.get("manifest.json", b"[]"))]
        indices = [entry["digest"] for entry in json.loads(texts.get("index.json", b"{}")).get("manifests", ())]
    except (OSError, EOFError, tarfile.TarError) as error:
        raise StepError(f"container_image_archive {path} cannot be read: {error}. Save it again") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        configs = indices = []
    if len(configs) != 1:
        kind = f"contains {len(configs)} images" if configs else "is not an image archive"
        raise StepError(f"container_image_archive {path} {kind}. Save one image with `docker save --output FILE IMAGE`")
    digests = []
    for value in [*configs, *indices]:
        name = digest_of(value[:-5] if value.endswith(".json") else value) if isinstance(value, str) else ""
        if not DIGEST.fullmatch(name):  # an engine might read it as an option
            raise StepError(
                f"container_image_archive {path} refers to its image as {repr(value)[:100]} instead of by its "
                "SHA-256. Save it again with `docker save --output FILE IMAGE`"
            )
        digests.append(name)
    return digests


def unpacked_size(path: str) -> int:
    """Return an archive's uncompressed size in bytes, or 0 if unknown."""
    total = 0
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() else None
                start = stream.read(len(ZSTD)) if stream else b""
                size = member.size
                if stream and start.startswith(GZIP):
                    stream.seek(-4, os.SEEK_END)  # the size modulo 4 GiB, and only that of the last of several parts
                    size = int.from_bytes(stream.read(4), "little")
                if start == ZSTD or size < member.size:
                    return 0
                total += size
    except (OSError, EOFError, tarfile.TarError):
        return 0
    return total


def context_hash(directory: str) -> str:
    """Return a hash of a Dockerfile and the files next to it, computed from names, modes and contents.

    Raise StepError if there is anything but files, directories and links: reading a pipe may block forever.
    """
    digest = hashlib.sha256()
    for current, names, files in os.walk(directory):
        names[:] = sorted(name for name in names if name != ".git")
        for name in sorted(files):
            path = os.path.join(current, name)
            if os.path.exists(path) and not os.path.isfile(path):  # except for broken links
                raise StepError(
                    f"{path} is not a regular file, but everything next to a Dockerfile is copied to a node. Remove "
                    "this file, or move the Dockerfile to a separate directory"
                )
            description = [os.path.relpath(path, directory), os.lstat(path).st_mode & 0o777]
            if os.path.islink(path):
                description.append(os.readlink(path))
            else:
                description.append(compute_sha256(path))
            digest.update(json.dumps(description).encode())
    return digest.hexdigest()


def inspect(request: dict[str, str]) -> dict[str, Any]:
    """Return the state of the engine, its image, the archive and the context. engine "": only the archive and the
    context.
    """
    reply: dict[str, Any] = {"engine_error": "", "id": "", "size": 0, "label": "", "archive": [], "context": ""}
    for part in (inspect_engine, inspect_files):  # inspect files even without an engine, which may be installed later
        try:
            part(request, reply)
        except StepError as error:
            reply["engine_error"] = reply["engine_error"] or str(error)
        except OSError as os_error:
            reply["engine_error"] = reply["engine_error"] or f"{os_error.filename}: {os_error.strerror}"
    return reply


def inspect_engine(request: dict[str, str], reply: dict[str, Any]) -> None:
    """Add the engine's image directory and its copy of this image. Raise StepError."""
    if not request.get("engine"):
        return
    engine = Engine(request["engine"])
    if not shutil.which(engine.name):
        raise StepError(f"{engine.name} is not installed")
    reply["root"], reply["free"] = engine.free_space()
    image = engine.find(request["name"])
    reply.update(image._asdict() if image else {})


def inspect_files(request: dict[str, str], reply: dict[str, Any]) -> None:
    """Add the contents of an archive and a build context. Raise StepError."""
    path = os.path.expanduser(request.get("archive", ""))
    if path and os.path.isfile(path):
        reply["archive"] = read_archive(path)
    if request.get("context"):
        reply["context"] = context_hash(os.path.expanduser(request["context"]))

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container engine on this machine, and its copy of an image. Private to this collection.

Runs on the node, standard library only, Python >= 3.8. The role container_image copies it as engine.py next to its own
program, so it imports nothing from this collection.
"""

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

LABEL = "muster.source"  # label of an image that was built here: the hash of its build context
TIMEOUT = 60.0  # seconds within which a working engine answers
MAX_MANIFEST = 2**20  # bytes of an archive's manifest
CHUNK = 2**20  # bytes of a file read at a time
DIGEST = re.compile(r"[0-9a-f]{64}")  # SHA-256, by which engines know an image
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # first bytes of compressed files
FULL = re.compile(r"no space left on device|disk quota exceeded", re.I)
DENIED = re.compile(
    r"unauthorized|authentication required|(?<!permission )denied|forbidden|no basic auth|invalid username", re.I
)
LIMITED = re.compile(r"toomanyrequests|too many requests|rate limit", re.I)
# What three builders print if the image in FROM is not available.
NO_BASE = re.compile(r"pull access denied|failed to resolve source metadata|creating build container", re.I)
UNKNOWN = re.compile(r"manifest unknown|name unknown|manifest for \S+ not found|repository \S+ not found", re.I)
NO_TRUST = re.compile(r"signed by unknown authority|unable to get local issuer|certificate is not trusted", re.I)
NO_TLS = re.compile(r"gave HTTP response to HTTPS", re.I)
NO_ANSWER = re.compile(
    r"connection refused|no such host|no route to host|unreachable|timeout|timed out|deadline exceeded|"
    r"connection reset|temporary failure in name|server misbehaving|\bEOF\b|\b50[0-4]\b|service unavailable",
    re.I,
)


class EngineError(Exception):
    """What was found, what is needed and what to do, in one line."""


class EngineImage(NamedTuple):
    """An image that the engine has. id: its digest in hex. size: bytes, unpacked. label: see LABEL."""

    id: str
    size: int
    label: str


def error_output(completed: subprocess.CompletedProcess[str]) -> str:
    """The end of a failed program's output."""
    text = " ".join((completed.stderr or completed.stdout).split())
    return text[-400:] or f"exit code {completed.returncode}"


def existing_parent(path: str) -> str:
    """A directory, or its nearest existing parent."""
    while path and not os.path.isdir(path):
        path = os.path.dirname(path)
    return path or "/"


def digest_of(identity: str) -> str:
    """The digest of an image, without the name of its algorithm, which podman leaves out."""
    return identity.rpartition(":")[2]


class Engine:
    """docker or podman, as the user who runs this."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.login: list[str] = []  # options that make it use a registry login
        self.environment = dict(os.environ)

    def run(self, *arguments: str, text: str = "", timeout: float | None = None) -> subprocess.CompletedProcess[str]:
        """Run the engine to its end, with a text on standard input. Raises Fault if it cannot be run or hangs."""
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
            raise EngineError(f"{self.name} cannot be run: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise EngineError(f"`{self.name} {' '.join(arguments[:2])}` did not answer within {timeout:g} s") from None

    def find(self, name: str) -> EngineImage | None:
        """The image with a name or id, None if there is none. Raises Fault if the engine does not say."""
        completed = self.run("image", "inspect", "--format", "{{json .}}", name, timeout=TIMEOUT)
        if completed.returncode:
            if re.search(r"no such image|image not known|not found", completed.stderr, re.I):
                return None
            raise EngineError(f"`{self.name} image inspect {name}`: {error_output(completed)}")
        reply = json.loads(completed.stdout)
        image = reply[0] if isinstance(reply, list) else reply  # podman prints a list in this format, even of one
        labels = (image.get("Config") or {}).get("Labels") or {}
        return EngineImage(digest_of(image["Id"]), int(image.get("Size") or 0), str(labels.get(LABEL, "")))

    def root(self) -> str:
        """The directory in which the engine keeps images. Raises Fault."""
        info_format = "{{.DockerRootDir}}" if self.name == "docker" else "{{.Store.GraphRoot}}"
        completed = self.run("info", "--format", info_format, timeout=TIMEOUT)
        if completed.returncode:
            raise EngineError(f"`{self.name} info`: {error_output(completed)}")
        return completed.stdout.strip()

    def free_space(self) -> tuple[str, int]:
        """The directory in which the engine keeps images, and the bytes free there."""
        root = self.root()
        return root, shutil.disk_usage(existing_parent(root)).free

    def unpack_directory(self) -> str:
        """The directory where an image being loaded is temporarily unpacked a second time. Raises Fault."""
        if self.name == "docker":
            return self.root()
        completed = self.run("info", "--format", "{{.Store.ImageCopyTmpDir}}", timeout=TIMEOUT)
        # older engines use it without saying so
        return (completed.stdout.strip() if completed.returncode == 0 else "") or "/var/tmp"

    def builder(self) -> list[str]:
        """The words of the build command. A rootless podman asks the user's systemd for a cgroup to build in.

        Without the package dbus-user-session nobody answers, and only podman's run command works without a cgroup.
        """
        user = self.name == "podman" and os.geteuid() != 0
        return ["--cgroup-manager=cgroupfs", "build"] if user else ["build"]

    def command_error(self, failure: str, completed: subprocess.CompletedProcess[str]) -> EngineError:
        """Why a command failed, with the remedy if it is known."""
        message = error_output(completed)
        return EngineError(f"{failure}: {message}. {self.remedy()}" if FULL.search(message) else f"{failure}: {message}")

    def registry_error(self, failure: str, registry: str, completed: subprocess.CompletedProcess[str], user: str) -> EngineError:
        """Why a registry refused a request, and what to do. user: who has logged in, or should have."""
        message = error_output(completed)
        if FULL.search(message):
            return self.command_error(failure, completed)
        return EngineError(f"{failure}: {message}. {suggest_remedy(message, registry, user)}".rstrip())

    def build_error(self, failure: str, completed: subprocess.CompletedProcess[str], user: str) -> EngineError:
        """Why a build failed, and what to do if a registry refuses the Dockerfile's base image."""
        message = error_output(completed)
        if not (LIMITED.search(message) or (NO_BASE.search(message) and DENIED.search(message))):
            return self.command_error(failure, completed)
        note = "" if user else "; container_image_base is then the name after FROM, whose registry the login is for"
        return EngineError(f"{failure}: {message}. {suggest_remedy(message, '', user)}{note}")

    def remedy(self) -> str:
        """What to do if the engine's disk is full."""
        if self.name == "docker":
            return (
                "Docker's data move to a larger disk by `ansible-playbook site.yml --tags docker_data_root "
                "-e docker_data_root_path=/that/disk/docker`; `docker image prune --all` removes images that no "
                "container uses"
            )
        # podman refuses to start if root's file has only graphroot
        lines = ['driver = "overlay"', 'graphroot = "/that/disk/containers"']
        file = "~/.config/containers/storage.conf"
        if os.geteuid() == 0:
            lines.append('runroot = "/run/containers/storage"')
            file = "/etc/containers/storage.conf"
        return (
            "`podman image prune --all` removes images that no container uses; a larger disk is used with "
            f"{file} of these lines: [storage], {', '.join(lines)}"
        )


@contextlib.contextmanager
def logged_in(engine: Engine, name: str, user: str, password: str, directory: str) -> Iterator[None]:
    """Let the engine pull with a login, which is kept in a separate directory and then removed. Raises Fault."""
    shutil.rmtree(directory, ignore_errors=True)  # left by a call that was killed
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
            raise engine.registry_error(f"{registry} does not let {user} log in", registry, completed, user)
        yield
    finally:
        engine.login = []
        engine.environment.pop("REGISTRY_AUTH_FILE", None)
        shutil.rmtree(directory, ignore_errors=True)


def registry_of(name: str) -> str:
    """The registry of an image name, by Docker's rules."""
    first, slash, _rest = name.partition("/")
    return first if slash and (re.search(r"[.:]", first) or first == "localhost") else "docker.io"


def suggest_remedy(message: str, registry: str, user: str) -> str:
    """What to do about a message from a registry, or from the network on the way to it. user: who logs in."""
    if UNKNOWN.search(message):
        return "Correct the image's name and tag: the registry has none of this name"
    if LIMITED.search(message):
        hint = "container_image_registry_user and container_image_registry_password: a login may pull more"
        return "Wait, then run this again" if user else f"Wait, or give {hint}"
    if DENIED.search(message):
        if user:
            return (
                "Correct container_image_registry_user, container_image_registry_password, or the image's name: this "
                "login may not pull it"
            )
        return "Correct the image's name, or give container_image_registry_user and container_image_registry_password"
    docker_hub = registry == "docker.io"
    host = "registry-1.docker.io" if docker_hub else registry
    if NO_TLS.search(message):
        return (
            f"Needed: a registry with TLS. Give {registry} a certificate, or have the engine go without: docker by "
            f"docker_engine_settings: {{insecure-registries: [{registry}]}}, podman by insecure = true in "
            "/etc/containers/registries.conf"
        )
    if NO_TRUST.search(message):
        certificate_path = f"/etc/docker/certs.d/{registry}/ca.crt on this node"
        if docker_hub:  # Docker does not use it for its own registry
            certificate_path = (
                "/usr/local/share/ca-certificates/NAME.crt on this node, as root run `update-ca-certificates`, restart "
                "docker where it is the engine"
            )
        return (
            f"Needed: a certificate of {registry} that this node knows. Put that of its authority, or of the proxy "
            f"that answers in its place, into {certificate_path}, and run this again"
        )
    if NO_ANSWER.search(message):
        return (
            f"Needed: a registry that answers this node. See whether {registry} runs and `curl https://{host}/v2/` "
            "reaches it from there; run this again then. Without a registry, container_image_archive takes what "
            "`docker save` has written elsewhere"
        )
    return ""


def qualified_name(name: str) -> str:
    """An image name with its registry, which podman does not add by itself."""
    registry = registry_of(name)
    if name.startswith(f"{registry}/"):
        return name
    return f"{registry}/{name if '/' in name else f'library/{name}'}"


# --- Archives and contexts --------------------------------------------------------------------------------------------


def read_archive(path: str) -> list[str]:
    """The digests by which an engine may know an archive's image. Raises Fault unless it holds exactly one image."""
    texts: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = member.name[2:] if member.name.startswith("./") else member.name
                if name in ("manifest.json", "index.json") and member.isfile() and member.size < MAX_MANIFEST:
                    stream = archive.extractfile(member)
                    texts[name] = stream.read() if stream else b""
        configs = [os.path.basename(entry["Config"]) for entry in json.loads(texts.get("manifest.json", b"[]"))]
        indices = [one["digest"] for one in json.loads(texts.get("index.json", b"{}")).get("manifests", ())]
    except (OSError, EOFError, tarfile.TarError) as error:
        raise EngineError(f"container_image_archive {path} cannot be read: {error}. Save it again") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        configs = indices = []
    if len(configs) != 1:
        kind = f"holds {len(configs)} images" if configs else "is no archive of an image"
        raise EngineError(
            f"container_image_archive {path} {kind}. Needed: one image, as `docker save --output FILE IMAGE` writes it"
        )
    digests = []
    for one in [*configs, *indices]:
        name = digest_of(one[:-5] if one.endswith(".json") else one) if isinstance(one, str) else ""
        if not DIGEST.fullmatch(name):  # an engine might read it as an option
            raise EngineError(
                f"container_image_archive {path} calls its image {repr(one)[:100]}. Needed: its SHA-256, 64 hex "
                "digits, as `docker save --output FILE IMAGE` writes it. Save it again"
            )
        digests.append(name)
    return digests


def unpacked_size(path: str) -> int:
    """The uncompressed size of an archive in bytes; 0 if unknown."""
    total = 0
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() else None
                start = stream.read(len(ZSTD)) if stream else b""
                size = member.size
                if stream and start.startswith(GZIP):
                    stream.seek(-4, os.SEEK_END)  # modulo 4 GiB, and only the last of several parts
                    size = int.from_bytes(stream.read(4), "little")
                if start == ZSTD or size < member.size:
                    return 0
                total += size
    except (OSError, EOFError, tarfile.TarError):
        return 0
    return total


def file_hash(path: str) -> str:
    """The SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for chunk in iter(lambda: stream.read(CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def context_hash(directory: str) -> str:
    """A hash of a Dockerfile and the files beside it, from names, modes and contents.

    Raises Fault if there is anything but files, directories and links: reading a pipe may not end.
    """
    digest = hashlib.sha256()
    for current, names, files in os.walk(directory):
        names[:] = sorted(name for name in names if name != ".git")
        for name in sorted(files):
            path = os.path.join(current, name)
            if os.path.exists(path) and not os.path.isfile(path):  # except for broken links
                raise EngineError(
                    f"{path} is not a regular file. Needed: files, directories and links to them beside a Dockerfile, "
                    "which are copied to a node. Remove it, or move the Dockerfile to a directory of its own"
                )
            description = [os.path.relpath(path, directory), os.lstat(path).st_mode & 0o777]
            if os.path.islink(path):
                description.append(os.readlink(path))
            else:
                description.append(file_hash(path))
            digest.update(json.dumps(description).encode())
    return digest.hexdigest()


def inspect(request: dict[str, str]) -> dict[str, Any]:
    """What exists. engine "": examine only an archive or a context."""
    reply: dict[str, Any] = {"fault": "", "id": "", "size": 0, "label": "", "archive": [], "context": ""}
    for part in (inspect_engine, inspect_files):  # look at files even without an engine, which may be installed later
        try:
            part(request, reply)
        except EngineError as fault:
            reply["fault"] = reply["fault"] or str(fault)
        except OSError as os_error:
            reply["fault"] = reply["fault"] or f"{os_error.filename}: {os_error.strerror}"
    return reply


def inspect_engine(request: dict[str, str], reply: dict[str, Any]) -> None:
    """Where the engine keeps images, and its copy of this one. Raises Fault."""
    if not request.get("engine"):
        return
    engine = Engine(request["engine"])
    if not shutil.which(engine.name):
        raise EngineError(f"there is no {engine.name}")
    reply["root"], reply["free"] = engine.free_space()
    image = engine.find(request["name"])
    reply.update(image._asdict() if image else {})


def inspect_files(request: dict[str, str], reply: dict[str, Any]) -> None:
    """The contents of an archive and a context. Raises Fault."""
    path = os.path.expanduser(request.get("archive", ""))
    if path and os.path.isfile(path):
        reply["archive"] = read_archive(path)
    if request.get("context"):
        reply["context"] = context_hash(os.path.expanduser(request["context"]))

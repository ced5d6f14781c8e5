"""The work of the role python_env on a node: packages are solved once, and installed everywhere from the same wheels.

Runs as the owner of the environment: packages.py VERB, with what is asked for as JSON on its standard input, where no
other user can read it. The first node solves: what is to be installed, in which versions, from which files. That is a
lock, one a layer. Each node, the first one too, installs the files of a lock. The others get them from the first one,
by HTTP over the private network, and compare their hashes with the lock's.
"""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import glob
import grp
import hashlib
import html
import http.server
import json
import netrc
import os
import pwd
import re
import secrets
import shutil
import stat
import subprocess
import sys
import tarfile
import threading
import time
import urllib.parse
import urllib.request
import zipfile
from typing import Any, Iterator

MARK = "MUSTER-RESULT "
IDLE = 600  # seconds without a request after which the server of the files ends by itself
CHUNK = 1 << 20
VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"


class Fault(Exception):
    """What was found, what is needed and what to do."""


class ProgramFault(Fault):
    """A program failed. What it printed says why."""


def read(path: str) -> str:
    """The text of a file, empty where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def write(path: str, text: str) -> None:
    """Write a file, whole or not at all."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def say(words: str) -> None:
    """A line for the one who waits."""
    print(words, flush=True)


def run(words: list[str], **options: Any) -> None:
    """Run a program that prints why it fails. Raises ProgramFault if it does."""
    code = subprocess.run(words, stdin=subprocess.DEVNULL, check=False, **options).returncode
    if code:
        end = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise ProgramFault(f"`{' '.join(words[:6])} ...` failed ({end})")


def asked_of(words: list[str]) -> str:
    """What a program prints when it is asked. Raises ProgramFault if it fails."""
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise ProgramFault(f"`{' '.join(words[:6])} ...` failed (exit code {done.returncode})")
    return done.stdout


def sha256_of(path: str) -> str:
    """The hash of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(CHUNK), b""):
            digest.update(piece)
    return digest.hexdigest()


def normal(name: str) -> str:
    """The name of a distribution as all tools agree on it."""
    return re.sub(r"[-_.]+", "-", name).lower()


# --- Places -----------------------------------------------------------------------------------------------------------


class Place:
    """Where things lie, below one directory that is the same on all nodes."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.root = given["directory"]
        self.environment = os.path.join(self.root, "env")
        self.python = os.path.join(self.environment, "bin", "python")
        self.store = os.path.join(self.root, "store")
        self.tools = os.path.join(self.root, "tools")
        self.uv = os.path.join(self.tools, "uv")
        self.conda = os.path.join(self.root, "conda")
        self.pythons = os.path.join(self.root, "pythons")
        self.records = [os.path.join(self.root, name) for name in ("locks", "installed", "cache")]

    def lock(self, layer: str) -> str:
        return os.path.join(self.root, "locks", f"{layer}.json")

    def installed(self, layer: str) -> str:
        return os.path.join(self.root, "installed", layer)

    def has_records(self) -> bool:
        return os.path.isdir(self.installed(""))


# --- Whom root trusts -------------------------------------------------------------------------------------------------


def has_others(gid: int) -> bool:
    """Whether a group has a member who is not root."""
    if gid == 0:
        return False
    try:
        members = set(grp.getgrgid(gid).gr_mem)
    except KeyError:
        members = set()
    members |= {one.pw_name for one in pwd.getpwall() if one.pw_gid == gid and one.pw_uid != 0}
    return bool(members - {"root"})


def who_else_can_change(path: str, sticky_will_do: bool = False) -> str:
    """Who besides root can change what lies at a path, in words; empty where nobody can."""
    info = os.lstat(path)
    if info.st_uid != 0:
        try:
            return f"belongs to {pwd.getpwuid(info.st_uid).pw_name}"
        except KeyError:
            return f"belongs to the user with the number {info.st_uid}"
    if stat.S_ISLNK(info.st_mode) or (sticky_will_do and info.st_mode & stat.S_ISVTX):
        return ""
    if info.st_mode & stat.S_IWOTH:
        return "can be written by everybody"
    if info.st_mode & stat.S_IWGRP and has_others(info.st_gid):
        return "can be written by its group"
    return ""


def parents_of(path: str) -> list[str]:
    """The directories above a path that exist, and those that links on the way lead to."""
    found = []
    for way in sorted({os.path.abspath(path), os.path.realpath(path)}):
        while way != "/":
            way = os.path.dirname(way)
            if os.path.lexists(way):
                found.append(way)
    return found


def refuse_what_others_can_change(place: Place) -> None:
    """As root, refuse a directory into which somebody else can put programs, or has put some.

    All that lies in it is looked at once. Afterwards a mark in it says so, which nobody else could have made or moved
    there: it belongs to root and names the directory by its number.
    """
    if os.geteuid() != 0 or not os.path.isdir(place.root):
        return
    for path in [*parents_of(place.root), place.root, os.path.realpath(place.root)]:
        problem = who_else_can_change(path, sticky_will_do=path not in (place.root, os.path.realpath(place.root)))
        if problem:
            raise Fault(
                f"{path} {problem}, and root would run programs from {place.root}. Needed: a directory that only root "
                "can change, and so all directories above it. Set python_env_directory (for S3, s3_client_directory) "
                "to such a one, as /usr/local/lib/muster/NAME"
            )
    info = os.stat(place.root)
    mark = os.path.join(place.root, ".only-root")
    number = f"{info.st_dev}:{info.st_ino}"
    if read(mark) == number and not os.path.islink(mark) and not who_else_can_change(mark):
        return
    for top in (place.environment, place.store, place.tools, place.conda, place.pythons, *place.records):
        for directory, inner, files in os.walk(top):
            for path in [directory, *(os.path.join(directory, name) for name in inner + files)]:
                problem = who_else_can_change(path)
                if problem:
                    raise Fault(
                        f"{path} {problem}, and root would run programs from {place.root}. Needed: nothing in it that "
                        f"somebody else has made. Look at what it is, then remove {top} and run this again"
                    )
    write(mark, number)


# --- Credentials ------------------------------------------------------------------------------------------------------

# Those of git+https:// are git's business, which does not look where we put them.
CREDENTIALS = re.compile(r"(?<!\+)\b(https?://)([^/\s@]+)@([^/\s:@]+)")


def take_credentials(asked: dict[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[str, str]]]:
    """What is asked for with all addresses as they may be shown, and users and passwords by host."""
    logins: dict[str, tuple[str, str]] = {}

    def without(found: re.Match[str]) -> str:
        user, _colon, password = found[2].partition(":")
        login = urllib.parse.unquote(user), urllib.parse.unquote(password)
        if logins.setdefault(found[3].lower(), login) != login:
            raise Fault(
                f"there are different credentials for {found[3]}. Needed: one user and password a host. Correct the "
                "addresses of indexes and packages, or use ~/.netrc of this node"
            )
        if any(re.search(r"[\s\\\"]", word) for word in login):
            raise Fault(
                f"the credentials for {found[3]} have a blank, a quotation mark or a backslash in them. Needed: "
                "credentials that can stand in a netrc file. Make others"
            )
        return found[1] + found[3]

    names = ("index_url", "extra_index_urls", "find_links", "requirements", "conda_installer_url", "conda_channels")
    shown = {}
    for name in names:
        value = asked[name]
        shown[name] = (
            [CREDENTIALS.sub(without, one) for one in value]
            if isinstance(value, list)
            else CREDENTIALS.sub(without, value)
        )
    return {**asked, **shown}, logins


@contextlib.contextmanager
def logged_in(place: Place, logins: dict[str, tuple[str, str]]) -> Iterator[None]:
    """Have pip, conda and ourselves find these credentials, beside those of ~/.netrc, in a file and in no argument."""
    if not logins:
        yield
        return
    before = os.environ.get("NETRC", os.path.expanduser("~/.netrc"))
    path = os.path.join(place.root, "netrc")
    words = [f"login {user}" + (f" password {password}" if password else "") for user, password in logins.values()]
    lines = [read(before), *(f"machine {host} {login}" for host, login in zip(logins, words)), ""]
    os.makedirs(place.root, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # of one that was killed
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    os.environ["NETRC"] = path
    try:
        yield
    finally:
        os.environ["NETRC"] = before
        os.unlink(path)


def opened(url: str) -> Any:
    """The answer of a server, who is told the credentials that there are for it."""
    request = urllib.request.Request(url)
    try:
        login = netrc.netrc(os.environ.get("NETRC", os.path.expanduser("~/.netrc"))).hosts.get(
            urllib.parse.urlsplit(url).hostname or ""
        )
    except (OSError, netrc.NetrcParseError):
        login = None
    if login:
        word = base64.b64encode(f"{login[0]}:{login[2] or ''}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {word}")
    return urllib.request.urlopen(request, timeout=60)


# --- What is there ----------------------------------------------------------------------------------------------------


def find_python(name: str) -> tuple[str, str]:
    """Path and version of an interpreter of this system, by name, path or version; both empty where there is none."""
    for candidate in (name, f"python{name}"):
        path = shutil.which(candidate)
        if path:
            done = subprocess.run([path, "-c", VERSION], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return path, done.stdout.strip()
    return "", ""


def version_in(place: Place) -> str:
    """The version of the environment's interpreter, empty where there is none that starts."""
    return find_python(place.python)[1] if os.path.exists(place.python) else ""


def packages_in(place: Place) -> dict[str, str]:
    """Names and versions of what is installed in the environment."""
    found = {}
    for path in glob.glob(os.path.join(place.environment, "lib", "python3*", "site-packages", "*.dist-info")):
        name, _dash, version = os.path.basename(path)[: -len(".dist-info")].rpartition("-")
        found[normal(name)] = version
    return found


def record_of(place: Place, layer: str) -> dict[str, Any]:
    """What was installed here for a layer: the key of its lock, all that it needs, and what it has put there itself."""
    text = read(place.installed(layer))
    record: dict[str, Any] = json.loads(text) if text.startswith("{") else {"key": text, "needs": None, "put": []}
    return record


def layers_in(place: Place) -> list[str]:
    """The layers that were installed here."""
    return sorted(name for name in os.listdir(place.installed("")) if "." not in name) if place.has_records() else []


def names_in(lock: dict[str, Any]) -> set[str]:
    """The names of all distributions of a lock, those of source trees too."""
    return {one["name"] for one in lock["packages"]} | set(lock.get("trees", []))


def unneeded_in(place: Place, lock: dict[str, Any]) -> list[str]:
    """What the layer of a lock has put here, and now neither it nor another layer needs."""
    others = [record_of(place, layer)["needs"] for layer in layers_in(place) if layer != lock["layer"]]
    if None in others:  # installed before such records were kept
        return []
    needed = names_in(lock).union(*others)
    return sorted((set(record_of(place, lock["layer"])["put"]) - needed) & set(packages_in(place)))


def missing_in(place: Place, lock: dict[str, Any]) -> list[str]:
    """What a lock has and the environment has not."""
    here = packages_in(place)
    names = [one["name"] for one in lock["packages"] if here.get(one["name"]) != one["version"]]
    if not version_in(place):
        names.append("the environment")
    elif record_of(place, lock["layer"])["key"] != lock["key"]:
        names += [*lock["editable"], lock["layer"]]
    return names


# --- The index, for the tools that come before all others -------------------------------------------------------------


def pip_setting(name: str) -> str:
    """A setting of pip's on this machine, by its files and its environment."""
    found = ""
    for path in ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf"):
        for line in read(os.path.expanduser(path)).splitlines():
            key, equals, value = line.partition("=")
            if equals and key.strip() == name:
                found = value.strip()
    return os.environ.get("PIP_" + name.replace("-", "_").upper(), found)


def wheel_on_index(index: str, name: str, version: str) -> tuple[str, str]:
    """The URL and hash of a wheel that runs here, from a simple index."""
    page_url = f"{index.rstrip('/')}/{name}/"
    machine = os.uname().machine
    try:
        with opened(page_url) as answer:
            page = answer.read().decode()
    except OSError as problem:
        raise Fault(
            f"{page_url} cannot be read ({problem}). Needed: a package index. Set python_env_index_url to one that "
            "this machine reaches, or see to its way to the internet"
        ) from None
    fitting = []
    for link in re.findall(r'href="([^"]+)"', page):
        url, _hash, digest = urllib.parse.urljoin(page_url, html.unescape(link)).partition("#sha256=")
        file = urllib.parse.unquote(url.rpartition("/")[2])
        if re.match(rf"{name}-{re.escape(version)}-.*-(any|manylinux.*_{machine}.*)\.whl\Z", file):
            fitting.append((url, digest))
    if not fitting:
        raise Fault(f"{page_url} has no wheel of {name} {version} for {machine}. Set python_env_{name}_version")
    return fitting[0]


def download(url: str, path: str, digest: str, setting: str) -> None:
    """Get a file, and refuse one whose hash is another; as root, also one whose hash is not known beforehand.

    setting says where the hash can be given.
    """
    if not digest and os.geteuid() == 0:
        raise Fault(
            f"the hash of {url} is not known, and root would run what is in it. Needed: its sha256 ({setting}), as its "
            "publisher tells it, or an environment of a user who is not root (python_env_user)"
        )
    found = hashlib.sha256()
    with opened(url) as answer, open(path + ".part", "wb") as file:
        for piece in iter(lambda: answer.read(CHUNK), b""):
            found.update(piece)
            file.write(piece)
    if digest and found.hexdigest() != digest:
        os.unlink(path + ".part")
        raise Fault(
            f"{url} has the hash sha256:{found.hexdigest()}. Needed: sha256:{digest} ({setting}). Compare both with "
            "what its publisher tells"
        )
    os.replace(path + ".part", path)


def get(url: str, path: str, digest: str, setting: str) -> None:
    """Download from a server that is not ours. Raises Fault if it does not answer."""
    try:
        download(url, path, digest, setting)
    except OSError as problem:
        raise Fault(
            f"{url} cannot be downloaded ({problem}). Needed: a server that this node reaches. Correct the address, or "
            "the node's way to the internet (proxy, firewall)"
        ) from None


def stored(place: Place, kind: str, file: str, **more: str) -> dict[str, Any]:
    """An entry of a lock for a file of the store."""
    return {"kind": kind, "file": file, "sha256": sha256_of(os.path.join(place.store, file)), **more}


def get_tools(place: Place, given: dict[str, Any]) -> list[dict[str, Any]]:
    """The installers themselves: pip, and uv where that is wanted. Wheels, so nothing of the system is needed."""
    os.makedirs(place.store, exist_ok=True)
    entries = []
    for name in ["pip", *(["uv"] if given["manager"] == "uv" else [])]:
        version = given[f"{name}_version"]
        found = glob.glob(os.path.join(place.store, f"{name}-{version}-*.whl"))
        if not found:
            index = given["index_url"] or pip_setting("index-url") or "https://pypi.org/simple"
            url, digest = wheel_on_index(index, name, version)
            file = urllib.parse.unquote(url.rpartition("/")[2])
            say(f"Getting {file}")
            get(url, os.path.join(place.store, file), digest, "#sha256=... after its address on the index")
            found = [os.path.join(place.store, file)]
        entries.append(stored(place, "tool", os.path.basename(found[0])))
    return entries


def put_tools(place: Place, entries: list[dict[str, Any]]) -> None:
    """Make the tools ready to be run, out of their wheels."""
    for entry in entries:
        if entry["kind"] != "tool":
            continue
        name = entry["file"].partition("-")[0]
        mark = os.path.join(place.tools, f"{name}.from")
        if read(mark) == entry["file"]:
            continue
        with zipfile.ZipFile(os.path.join(place.store, entry["file"])) as wheel:
            if name == "uv":
                inside = next(one for one in wheel.namelist() if one.endswith("/scripts/uv"))
                os.makedirs(place.tools, exist_ok=True)
                with open(place.uv + ".new", "wb") as file:
                    file.write(wheel.read(inside))
                os.chmod(place.uv + ".new", 0o755)
                os.replace(place.uv + ".new", place.uv)
            else:
                shutil.rmtree(os.path.join(place.tools, name), ignore_errors=True)
                wheel.extractall(os.path.join(place.tools, name))
        write(mark, entry["file"])


# --- The environment --------------------------------------------------------------------------------------------------


def make_environment(place: Place, given: dict[str, Any], files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make the environment, unless it is there. Returns files that other nodes need for theirs."""
    manager = read(os.path.join(place.environment, ".muster"))
    if version_in(place) and manager == given["manager"]:
        return [one for one in files if one["kind"] != "tool"]
    if version_in(place) and not manager:
        raise Fault(
            f"{place.environment} is an environment that somebody else made. Needed: a free place. "
            "Set python_env_directory to another directory, or remove it"
        )
    if os.path.exists(place.environment):
        say(f"Removing {place.environment}: it is of {manager or 'another manager'}, or its interpreter does not start")
        shutil.rmtree(place.environment)
    say(f"Making {place.environment} with {given['manager']}")
    made = {"uv": uv_environment, "venv": venv_environment, "conda": conda_environment}[given["manager"]](
        place, given, [one for one in files if one["kind"] != "tool"]
    )
    write(os.path.join(place.environment, ".muster"), given["manager"])
    return made


def uv_environment(place: Place, given: dict[str, Any], files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An environment of uv's; where the system lacks the interpreter, uv brings one, once for all nodes."""
    for one in files:
        if not os.path.isdir(os.path.join(place.pythons, one["name"])):
            with tarfile.open(os.path.join(place.store, one["file"])) as archive:
                archive.extractall(place.pythons)
    system = find_python(given["python"])[0]
    words = [place.uv, "venv", "--quiet", "--no-config", "--python", system or given["python"], place.environment]
    run(words, env=uv_variables(place))
    base = os.path.realpath(place.python)
    if files or not base.startswith(place.pythons + "/"):
        return files
    name = os.path.relpath(base, place.pythons).split(os.sep, maxsplit=1)[0]
    with tarfile.open(os.path.join(place.store, f"{name}.tar"), "w") as archive:
        archive.add(os.path.join(place.pythons, name), name)
    return [stored(place, "python", f"{name}.tar", name=name)]


def uv_variables(place: Place) -> dict[str, str]:
    """The environment in which uv runs: its cache lies beside the environment, so that files are linked, not copied."""
    ours = {
        "UV_CACHE_DIR": os.path.join(place.root, "cache"),
        "UV_PYTHON_INSTALL_DIR": place.pythons,
        "UV_NO_PROGRESS": "1",
        # flash-attention's wheels are renamed after they were built
        "UV_SKIP_WHEEL_FILENAME_CHECK": "1",
    }
    return {**os.environ, **ours}


def venv_environment(place: Place, given: dict[str, Any], _files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An environment of Python's own; without pip, so that a system without ensurepip can make one too."""
    path, _version = find_python(given["python"])
    run([path, "-m", "venv", "--without-pip", place.environment])
    return []


def get_conda_installer(given: dict[str, Any], path: str) -> None:
    """Have the installer of conda, of which it is known what it must be."""
    url, digest = given["conda_installer_url"], given["conda_installer_sha256"]
    if not digest:
        raise Fault(
            f"the hash of {url} is not given. Needed: its sha256 in python_env_conda_installer_sha256. Its publisher "
            "tells it beside the file (for Miniforge, the same address with .sha256 behind it)"
        )
    if os.path.exists(path) and sha256_of(path) != digest:
        os.unlink(path)
    if not os.path.exists(path):
        say(f"Getting {url}")
        get(url, path, digest, "python_env_conda_installer_sha256")


def conda_environment(place: Place, given: dict[str, Any], files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An environment of conda's: the first node asks the channels, the others take its packages."""
    program = os.path.join(place.conda, "bin", "conda")
    name = given["conda_installer_url"].rpartition("/")[2]
    installer = os.path.join(place.store, name)
    if not os.path.exists(program):
        get_conda_installer(given, installer)
        shutil.rmtree(place.conda, ignore_errors=True)  # an installation that was interrupted
        run(["bash", installer, "-b", "-p", place.conda])
    if given["conda_accept_terms"]:
        run([program, "tos", "accept"])
    if given["conda_init"]:
        run([program, "init", "--quiet"])
    packages = [one for one in files if one["kind"] == "conda-package"]
    if packages:
        paths = [os.path.join(place.store, one["file"]) for one in packages]
        explicit = os.path.join(place.root, "conda-packages.txt")
        write(explicit, "\n".join(["@EXPLICIT", *paths, ""]))
        run([program, "create", "--yes", "--quiet", "--offline", "--prefix", place.environment, "--file", explicit])
        return files
    wanted = [f"python={given['python']}", *given["conda_packages"]]
    channels = [word for channel in given["conda_channels"] for word in ("--channel", channel)]
    run([program, "create", "--yes", "--quiet", "--prefix", place.environment, *channels, *wanted])
    listing = asked_of([program, "list", "--explicit", "--prefix", place.environment])
    made = [stored(place, "conda-installer", name)]
    for line in listing.splitlines():
        if "://" in line:
            file = line.partition("#")[0].rpartition("/")[2]
            shutil.copy2(os.path.join(place.conda, "pkgs", file), os.path.join(place.store, file))
            made.append(stored(place, "conda-package", file))
    return made


# --- Solving, on the first node ---------------------------------------------------------------------------------------


def pip_words(place: Place) -> list[str]:
    """Words of a command of pip's for the environment."""
    return [place.python, os.path.join(place.tools, "pip", "pip")]


def source_words(given: dict[str, Any]) -> list[str]:
    """Where pip finds packages, besides what its own configuration says."""
    words = ["--index-url", given["index_url"]] if given["index_url"] else []
    words += [word for url in given["extra_index_urls"] for word in ("--extra-index-url", url)]
    return words + [word for url in given["find_links"] for word in ("--find-links", url)]


def earlier_locks(place: Place, given: dict[str, Any]) -> list[dict[str, Any]]:
    """The locks of layers that come before this one: what they have is not changed."""
    locks = [json.loads(read(path)) for path in sorted(glob.glob(place.lock("*")))]
    return sorted((one for one in locks if one["order"] < given["order"]), key=lambda one: one["order"])


def build_files(path: str) -> list[str]:
    """The files of a source tree that say how it is built and what it needs."""
    names = ("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt")
    return [os.path.join(path.partition("[")[0], name) for name in names]


def key_of(place: Place, given: dict[str, Any]) -> str:
    """What a lock depends on, as one text."""
    names = [*given["files"], *(name for path in given["editable"] for name in build_files(path))]
    parts = [
        given[name] for name in ("manager", "python_asked", "requirements", "editable", "pip_version", "uv_version")
    ]
    parts += [given[name] for name in ("index_url", "extra_index_urls", "find_links", "environment")]
    parts += [given[name] for name in ("conda_installer_url", "conda_packages", "conda_channels")]
    parts += [[name, read(name)] for name in names] + [one["packages"] for one in earlier_locks(place, given)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def check_sources(given: dict[str, Any]) -> None:
    """Files and trees that are asked for must be there."""
    for path in given["files"]:
        if not os.path.isfile(path):
            raise Fault(
                f"there is no file {path}. Needed: the requirements file on this node. "
                "Copy the code first (ansible-playbook site.yml --tags code), or correct python_env_requirements_files"
            )
    for path in given["editable"]:
        if not any(os.path.isfile(name) for name in build_files(path)[:3]):
            raise Fault(
                f"{path.partition('[')[0]} has no pyproject.toml and no setup.py. Needed: a source tree that can be "
                "installed. Copy the code first (ansible-playbook site.yml --tags code), or correct python_env_editable"
            )


def fetched(place: Place, requirement: str) -> str:
    """A requirement that names the address of a wheel, as the path of that wheel: pip would download it twice."""
    name, at, url = requirement.partition(" @ ")
    address, _hash, digest = url.partition("#sha256=")
    file = urllib.parse.unquote(address.rpartition("/")[2])
    if not at or not file.endswith(".whl"):
        return requirement
    path = os.path.join(place.store, file)
    if not os.path.exists(path):
        say(f"Getting {file}")
        get(address, path, digest, "#sha256=... after the address; for flash-attention, flash_attention_wheel_sha256")
    return path


def solution(place: Place, given: dict[str, Any], constraints: str) -> list[dict[str, Any]]:
    """What pip would install, with all that it needs."""
    report = os.path.join(place.root, "report.json")
    words = [*pip_words(place), "install", "--dry-run", "--ignore-installed", "--report", report]
    words += [*source_words(given), *given["options"]]
    words += [word for path in given["files"] for word in ("--requirement", path)]
    if constraints:
        words += ["--constraint", constraints]
    say("Solving what is to be installed")
    wanted = [fetched(place, one) for one in given["requirements"]]
    run([*words, *wanted, *given["editable"]], env={**os.environ, **given["environment"]})
    return list(json.loads(read(report))["install"])


def pinned(one: dict[str, Any]) -> str:
    """The requirement that gives exactly this package again."""
    info, name = one["download_info"], one["metadata"]["name"]
    if "vcs_info" in info:
        return f"{name} @ {info['vcs_info']['vcs']}+{info['url']}@{info['vcs_info']['commit_id']}"
    return f"{name} @ {info['url']}" if one["is_direct"] else f"{name}=={one['metadata']['version']}"


def stored_name(place: Place, one: dict[str, Any]) -> str:
    """The wheel of the store by whose path a package was asked for; its name may tell another version than it has."""
    path = urllib.parse.unquote(one["download_info"]["url"][len("file://") :])
    return os.path.basename(path) if one["is_direct"] and os.path.dirname(path) == place.store else ""


def wheels_in(directory: str) -> dict[tuple[str, str], str]:
    """The wheels of a directory by name and version."""
    found = {}
    for path in glob.glob(os.path.join(directory, "*.whl")):
        name, version = os.path.basename(path).split("-")[:2]
        found[normal(name), version] = os.path.basename(path)
    return found


def gather(place: Place, given: dict[str, Any], pins: list[str]) -> dict[tuple[str, str], str]:
    """Have wheels in the store: downloaded, or built where there is none."""
    if pins:
        new = os.path.join(place.store, "new")
        shutil.rmtree(new, ignore_errors=True)
        say(f"Getting {len(pins)} packages")
        words = [*pip_words(place), "wheel", "--no-deps", "--wheel-dir", new, *source_words(given), *given["options"]]
        run([*words, *pins], env={**os.environ, **given["environment"]})
        for name in os.listdir(new):
            os.replace(os.path.join(new, name), os.path.join(place.store, name))
    return wheels_in(place.store)


def build_requirements(place: Place, given: dict[str, Any]) -> list[str]:
    """What the editable trees need to be built."""
    wanted: list[str] = []
    for path in given["editable"]:
        text = "import sys, json; sys.path.insert(0, sys.argv[1]); from pip._vendor import tomli\n"
        text += "print(json.dumps(tomli.load(open(sys.argv[2], 'rb')).get('build-system', {}).get('requires', [])))"
        project = build_files(path)[0]
        if os.path.exists(project):
            words = [place.python, "-c", text, os.path.join(place.tools, "pip"), project]
            wanted += json.loads(asked_of(words))
        wanted += ["setuptools>=64", "wheel"]
    return sorted(set(wanted))


def look(given: dict[str, Any]) -> dict[str, Any]:
    """The lock of a layer; empty where there is none yet that stands for what is wanted now."""
    place = Place(given)
    lock = json.loads(read(place.lock(given["layer"])) or "{}")
    there = all(os.path.exists(os.path.join(place.store, one["file"])) for one in lock.get("files", []))
    stands = lock.get("key") == key_of(place, given) and there and version_in(place)
    return {"lock": lock if stands else {}, "changed": False}


def solve(given: dict[str, Any]) -> dict[str, Any]:
    """Make the lock of a layer."""
    place = Place(given)
    check_sources(given)
    key = key_of(place, given)
    base = json.loads(read(place.lock("base")) or "{}")
    files = get_tools(place, given)
    put_tools(place, files)
    # what an environment that is there was made of stands in the lock of the layer that made it
    files += make_environment(
        place, given, [one for one in base.get("files", []) if one["kind"] not in ("tool", "wheel")]
    )

    earlier = {one["name"]: one for lock in earlier_locks(place, given) for one in lock["packages"]}
    constraints = ""
    if earlier:
        constraints = os.path.join(place.root, "constraints.txt")
        write(constraints, "".join(f"{one['name']}=={one['version']}\n" for one in earlier.values()))
        given = {**given, "find_links": [*given["find_links"], place.store]}
    wanted = given["requirements"] or given["files"] or given["editable"]
    solved = solution(place, given, constraints) if wanted else []
    chosen = [one for one in solved if "dir_info" not in one["download_info"]]
    have = wheels_in(place.store)
    identities = {(normal(one["metadata"]["name"]), one["metadata"]["version"]): one for one in chosen}
    local = {identity: stored_name(place, one) for identity, one in identities.items()}
    pins = [
        pinned(one)
        for identity, one in identities.items()
        if not local[identity] and (one["is_direct"] or identity not in have)
    ]
    have = gather(place, given, pins)
    packages = []
    for identity, one in identities.items():
        file = local[identity] or have[identity]
        packages.append({"name": identity[0], "version": one["metadata"]["version"]})
        files.append(stored(place, "wheel", file))
    if given["editable"]:
        build = os.path.join(place.store, "new")
        shutil.rmtree(build, ignore_errors=True)
        run([*pip_words(place), "wheel", "--wheel-dir", build, *source_words(given), *build_requirements(place, given)])
        for name in os.listdir(build):
            os.replace(os.path.join(build, name), os.path.join(place.store, name))
            files.append(stored(place, "build", name))
    lock = {
        "layer": given["layer"],
        "order": given["order"],
        "key": key,
        "python": version_in(place),
        "packages": sorted(packages, key=lambda one: str(one["name"])),
        "editable": given["editable"],
        "trees": sorted(normal(one["metadata"]["name"]) for one in solved if "dir_info" in one["download_info"]),
        "files": sorted(files, key=lambda one: str(one["file"])),
    }
    write(place.lock(given["layer"]), json.dumps(lock, indent=1))
    return {"lock": lock}


# --- Installing, on each node -----------------------------------------------------------------------------------------


def check(given: dict[str, Any]) -> dict[str, Any]:
    """What is missing on this node of a lock; the lock is empty where the first node has not solved it yet."""
    place = Place(given)
    lock = given["lock"]
    path, version = find_python(given["python"])
    here = version_in(place)
    if not path and not here and given["manager"] == "venv":
        raise Fault(
            f"there is no interpreter {given['python']}. Needed: one of this system for an environment of venv. "
            "Install it, correct python_env_python, or set python_env_manager to uv, which brings one along"
        )
    root = place.root
    while not os.path.isdir(root):
        root = os.path.dirname(root)
    missing = missing_in(place, lock) if lock else []
    free = shutil.disk_usage(root).free
    if (missing or not lock) and free < given["space"] * 1e9:
        raise Fault(
            f"{root} has {free / 1e9:.1f} GB free. Needed: {given['space']} GB for packages. "
            "Make room, or set python_env_directory to a larger disk"
        )
    if lock and lock["python"].split(".")[:2] != (here or version or lock["python"]).split(".")[:2]:
        raise Fault(
            f"Python here is {here or version}, and {lock['python']} on the first node. Needed: one version, "
            "for which packages were chosen. Install the same, or set python_env_manager to uv, python_env_python to it"
        )
    return {
        "missing": missing,
        "unneeded": unneeded_in(place, lock) if lock and here else [],
        "layers": [layer for layer in layers_in(place) if record_of(place, layer)["put"]],
        "python": here,
        "changed": False,
    }


def fetch(place: Place, given: dict[str, Any], lock: dict[str, Any]) -> None:
    """Get the files of a lock that are not here from the first node."""
    files = {one["file"]: one for one in lock["files"]}  # a tool may be installed too
    wanted = [one for name, one in files.items() if not os.path.exists(os.path.join(place.store, name))]
    if not wanted:
        return
    os.makedirs(place.store, exist_ok=True)
    urllib.request.install_opener(urllib.request.build_opener(urllib.request.ProxyHandler({})))  # no detour to a peer
    say(f"Getting {len(wanted)} files from {given['from']}")

    def one_file(one: dict[str, Any]) -> None:
        url = f"{given['url']}/{urllib.parse.quote(one['file'])}"
        try:
            download(url, os.path.join(place.store, one["file"]), one["sha256"], "the lock of the first node")
        except OSError as problem:
            raise Fault(
                f"{given['from']} does not give {one['file']} ({given['url'].rpartition('/')[0]}: {problem}). Needed: "
                "free traffic between the nodes. Look at the firewall between them "
                "(ansible-playbook site.yml --tags firewall), then run this again"
            ) from None

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one_file, wanted))


def install(given: dict[str, Any]) -> dict[str, Any]:
    """Bring this node to a lock."""
    place = Place(given)
    lock = given["lock"]
    missing = missing_in(place, lock)
    if not missing:
        return {"changed": False}
    if given["url"]:
        fetch(place, given, lock)
    put_tools(place, lock["files"])
    make_environment(place, given, [one for one in lock["files"] if one["kind"] not in ("wheel", "build")])
    here = packages_in(place)
    unneeded = unneeded_in(place, lock)
    put = (set(record_of(place, lock["layer"])["put"]) & set(here)) | (names_in(lock) - set(here))
    needed = {one["name"] for one in lock["packages"] if here.get(one["name"]) != one["version"]}
    wheels = [
        one["file"] for one in lock["files"] if one["kind"] == "wheel" and normal(one["file"].split("-")[0]) in needed
    ]
    if given["manager"] == "uv":
        words = [place.uv, "pip", "install", "--no-config", "--offline", "--python", place.python]
        uninstall = [place.uv, "pip", "uninstall", "--no-config", "--python", place.python]
        variables = uv_variables(place)
    else:
        words = [*pip_words(place), "install"]
        uninstall = [*pip_words(place), "uninstall", "--yes"]
        variables = {**os.environ, "PIP_CONFIG_FILE": os.devnull}
        variables = {
            key: value for key, value in variables.items() if not key.startswith("PIP_") or key == "PIP_CONFIG_FILE"
        }
    words += ["--no-index", "--find-links", place.store, "--no-deps"]
    if unneeded:
        say(f"Removing {', '.join(unneeded)}")
        run([*uninstall, *unneeded], env=variables)
    if wheels:
        say(f"Installing {len(wheels)} packages")
    # A pip that runs from its wheel takes itself for the environment's, and would not install the same version.
    own = [file for file in wheels if file.startswith("pip-") and given["manager"] != "uv" and "pip" not in here]
    for files, more in ((own, ["--ignore-installed"]), ([file for file in wheels if file not in own], [])):
        if files:
            run([*words, *more, *(os.path.join(place.store, file) for file in files)], env=variables)
    for path in lock["editable"]:
        say(f"Installing {path} to be edited")
        run([*words, "--editable", path], env=variables)
    left = [name for name in missing_in(place, {**lock, "editable": []}) if name not in (lock["layer"],)]
    if left:
        raise Fault(
            f"these were installed and are not there: {', '.join(left)}. Run this again; else remove {place.root}"
        )
    record = {"key": lock["key"], "needs": sorted(names_in(lock)), "put": sorted(put & names_in(lock))}
    write(place.installed(lock["layer"]), json.dumps(record))
    if given["url"]:  # a copy; the first node keeps its own for nodes that come later
        for name in {one["file"] for one in lock["files"]}:
            os.unlink(os.path.join(place.store, name))
    answer = {"changed": True, "installed": missing, "removed": unneeded}
    if unneeded and not given["url"]:  # told once, by the first node
        answer["notice"] = f"{', '.join(unneeded)} removed from all nodes, since nothing requires it any more"
    return answer


# --- Handing on, from the first node to the others --------------------------------------------------------------------


class Handler(http.server.SimpleHTTPRequestHandler):
    """Gives the files of the store to who knows the token, and ends when told."""

    protocol_version = "HTTP/1.1"
    token = ""
    last = 0.0

    def do_GET(self) -> None:
        Handler.last = time.monotonic()
        token, _slash, self.path = self.path[1:].partition("/")
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            self.send_error(404)
            return
        if self.path == "end":
            threading.Thread(target=self.server.shutdown, daemon=True).start()
            self.path = "none"
        super().do_GET()

    def log_message(self, *_words: Any) -> None:
        """Nobody reads it."""


def serve(given: dict[str, Any]) -> dict[str, Any]:
    """Begin to hand out the files of the store to who knows the token, in a process of its own."""
    place = Place(given)
    os.makedirs(place.store, exist_ok=True)
    Handler.token = given["token"]
    Handler.last = time.monotonic()
    server = http.server.ThreadingHTTPServer((given["address"], 0), lambda *a: Handler(*a, directory=place.store))
    if os.fork() == 0:
        os.setsid()
        for number in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)

        def watch() -> None:
            while time.monotonic() - Handler.last < IDLE:
                time.sleep(5)
            server.shutdown()

        threading.Thread(target=watch, daemon=True).start()
        server.serve_forever()
        os._exit(0)
    return {"url": f"http://{given['address']}:{server.server_address[1]}", "changed": False}


def end(given: dict[str, Any]) -> dict[str, Any]:
    """End it."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(f"{given['url']}/end", timeout=10).close()
    except OSError:
        return {"changed": False}  # the answer is that there is no such file, or no server any more
    return {"changed": False}


VERBS = {"look": look, "solve": solve, "check": check, "install": install, "serve": serve, "end": end}


def main(verb: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked. Raises Fault if that cannot be."""
    for kind in ("files", "editable"):
        asked[kind] = [os.path.expanduser(path) for path in asked[kind]]
    asked, logins = take_credentials(asked)
    place = Place(asked)
    if verb != "end":
        refuse_what_others_can_change(place)
    with logged_in(place, logins) if verb == "solve" else contextlib.nullcontext():
        return VERBS[verb](asked)


if __name__ == "__main__":
    try:
        print(MARK + json.dumps(main(sys.argv[1], json.load(sys.stdin))), flush=True)
    except Fault as fault:
        print(MARK + json.dumps({"fault": str(fault), "output_tells": isinstance(fault, ProgramFault)}), flush=True)
        sys.exit(1)

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start a job's import test with its interpreter or in its image, and read the result."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import signal
import time

from ansible_collections.muster.training.plugins.module_utils._facts import import_program
from ansible_collections.muster.training.plugins.module_utils._facts.commands import Command
from ansible_collections.muster.training.plugins.module_utils._facts.image import add_group, parse_image

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

    from ansible_collections.muster.training.plugins.module_utils._facts.commands import CommandOutput

REMOVAL_TIMEOUT = 10.0  # seconds allowed for removing the container of a test that took too long
TIMEOUT = 60.0  # seconds; torch takes 2 s from a local disk, and up to a minute from a network drive
# variables set by a run's launcher that a test keeps
KEPT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ")
MAX_OUTPUT = 1500  # number of characters of a crashed interpreter's last output
MAX_ENTRIES = 200  # number of entries of each list in a result
CACHE = "~/.muster/import_tests"
GPU_OPTIONS = {"docker": ["--gpus=all"], "podman": ["--device=nvidia.com/gpu=all", "--security-opt=label=disable"]}


def has_gpus() -> bool:
    """Return whether this machine has NVIDIA GPUs that a program can open."""
    return bool(glob.glob("/dev/nvidia[0-9]*"))


def job_environment(variables: dict[str, str], interpreter: str = "") -> dict[str, str]:
    """Return a run's environment variables that affect imports."""
    environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    if interpreter:
        environment["PATH"] = os.path.dirname(interpreter) + os.pathsep + environment.get("PATH", "/usr/bin:/bin")
    return {**environment, "PYTHONUNBUFFERED": "1", **variables}


def program_request(request: dict[str, Any], script: str, key: str) -> dict[str, Any]:
    """Return the request for import_program.py without a cache; key: everything else that affects the imports."""
    return {
        "test": request["test"],
        "module": request["module"],
        "script": script,
        "cuda": bool(request["cuda"]) and has_gpus(),
        "cache": "",
        "key": key,
    }


class ImportQuery:
    """The import test with the job's interpreter, started on creation.

    request: `program` (the source of import_program.py), `test`, `module`, `cuda`, `environment` (variables of the job
    without secrets), `mounts` and `options` of a container.
    """

    def __init__(self, request: dict[str, Any], interpreter: str, script: str, directory: str) -> None:
        self.deadline = time.monotonic() + TIMEOUT
        key = hashlib.sha256(request["program"].encode()).hexdigest()
        values = {**program_request(request, script, key), "cache": os.path.expanduser(CACHE)}
        argv = [interpreter, "-c", request["program"], json.dumps(values)]
        self.command = Command(argv, cwd=directory, env=job_environment(request["environment"], interpreter))

    def result(self) -> dict[str, Any]:
        """Return the program's report; see parse_result()."""
        return parse_result(self.command.output(self.deadline))


def container_name() -> str:
    """Return the name of the container in which this process tests imports."""
    return f"muster-import-test-{os.getpid()}"


class ImageImportQuery:
    """The import test in the job's image, started once the image is known to exist.

    A success is cached for the image and the script, since a container takes a second to start.
    """

    def __init__(self, request: dict[str, Any], engine: str, image: str, script: str, directory: str) -> None:
        self.request = request
        self.engine = engine
        self.script = script
        self.directory = directory
        self.deadline = time.monotonic() + TIMEOUT
        argv = [engine, "image", "inspect", "--format", "{{.Id}} {{.Size}}", image]
        self.inspection = Command(add_group(engine, argv))

    def result(self) -> dict[str, Any]:
        """Return the program's report, or {} if the image does not exist."""
        image_id, _size, error = parse_image(self.inspection.output(self.deadline))
        if not image_id or error:
            return {}
        request = program_request(self.request, self.script, image_id)
        path = os.path.join(os.path.expanduser(CACHE), f"image-{self.digest(request)}.json")
        now = time.time()
        entry = import_program.read_cache(path, now)
        lifetime = import_program.CUDA_LIFETIME if request["cuda"] else import_program.CACHE_LIFETIME
        if isinstance(entry.get("result"), dict) and now - entry["passed"] < lifetime:
            return {**entry["result"], "cached": True, "ended": ""}
        output = Command(add_group(self.engine, self.command(request))).output(self.deadline)
        if output.hangs:  # ending the client does not end the container
            remove = [self.engine, "rm", "--force", container_name()]
            Command(add_group(self.engine, remove)).output(time.monotonic() + REMOVAL_TIMEOUT)
        result = parse_result(output)
        if not (result["ended"] or result["failures"] or result["cuda"]):
            import_program.write_cache(path, {"passed": now, "result": result})
        return result

    def digest(self, request: dict[str, Any]) -> str:
        """Return a digest of everything that affects the result: the image, the script, the files next to it, the
        machine.
        """
        files = []
        for path in sorted(glob.glob(os.path.join(glob.escape(os.path.dirname(self.script)), "*.py")))[:1000]:
            with contextlib.suppress(OSError):
                files.append((path, os.stat(path).st_mtime_ns))
        text = json.dumps([request, files, self.request, import_program.boot_id()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def command(self, request: dict[str, Any]) -> list[str]:
        """Return the command that starts the container with the job's directories mounted read-only."""
        directories = {self.directory, *([os.path.dirname(self.script)] if self.script else [])} - {"/", ""}
        user = f"--user={os.geteuid()}:{os.getegid()}"
        return [
            self.engine,
            "run",
            "--rm",
            f"--name={container_name()}",
            "--pull=never",
            "--network=host",
            "--ipc=host",
            "--userns=keep-id" if self.engine == "podman" and os.geteuid() else user,
            *(GPU_OPTIONS[self.engine] if request["cuda"] else []),
            *(f"--volume={directory}:{directory}:ro" for directory in sorted(directories)),
            *(f"--volume={mount}" for mount in self.request["mounts"]),
            f"--workdir={self.directory}",
            "--env=HOME=/tmp",
            *(f"--env={name}={value}" for name, value in self.request["environment"].items()),
            *self.request["options"],
            "--entrypoint=python3",
            request["key"],
            "-c",
            self.request["program"],
            json.dumps(request),
        ]


def parse_result(output: CommandOutput) -> dict[str, Any]:
    """Return the program's result, with the reason if it did not exit by itself.

    Keys: tested, cached, failures, cuda, libraries, features, files, python_h (see import_program.py); ended: "" or why
    the program has no result ("time" or "crash").
    """
    result: dict[str, Any] = {}
    progress: dict[str, Any] = {}
    printed = []
    for line in output.text.splitlines():
        if not line.startswith(import_program.MARK):
            printed.append(line)
            continue
        try:
            value = json.loads(line[len(import_program.MARK) :])
        except ValueError:
            continue
        result = value.get("result") or result
        progress = value
    if result:
        return {**clean_result(result), "ended": ""}
    unknown = {"tested": True, "cached": False, "cuda": [], "libraries": [], "features": [], "files": 0}
    if not progress:  # the test could not be started, or its Python is too old
        text = "\n".join(line for line in printed if line.strip())[-MAX_OUTPUT:]
        return {**unknown, "tested": False, "failures": [], "python_h": None, "ended": "unknown", "error": text}
    statement = str(progress.get("importing") or "")
    entry = {
        "file": str(progress.get("file") or ""),
        "line": progress.get("line") or 0,
        "statement": statement,
        "certain": not output.hangs,
        "error": describe_end(output, printed),
    }
    ended = "time" if output.hangs else "crash"
    if "cuda" in progress:
        cuda = [{"gpu": -1, "error": entry["error"]}]
        return {**unknown, "failures": [], "cuda": cuda, "python_h": None, "ended": ended}
    return {**unknown, "failures": [entry], "python_h": None, "ended": ended}


def clean_result(value: dict[str, Any]) -> dict[str, Any]:
    """Return a result in which all values have the expected types, whatever a library has printed."""

    def entries(name: str, fields: dict[str, Any]) -> list[dict[str, Any]]:
        given = value.get(name)
        items = given[:MAX_ENTRIES] if isinstance(given, list) else []
        return [
            {
                field: item[field] if isinstance(item.get(field), type(default)) else default
                for field, default in fields.items()
            }
            for item in items
            if isinstance(item, dict)
        ]

    def names(name: str) -> list[str]:
        given = value.get(name)
        return [str(item)[:100] for item in given[:MAX_ENTRIES]] if isinstance(given, list) else []

    return {
        "tested": value.get("tested") is True,
        "cached": value.get("cached") is True,
        "failures": entries("failures", {"file": "", "line": 0, "statement": "", "error": "", "certain": True}),
        "cuda": entries("cuda", {"gpu": -1, "error": ""}),
        "libraries": names("libraries"),
        "features": names("features"),
        "files": value["files"] if isinstance(value.get("files"), int) else 0,
        "python_h": value["python_h"] if isinstance(value.get("python_h"), bool) else None,
    }


def describe_end(output: CommandOutput, printed: list[str]) -> str:
    """Describe how an interpreter ended without returning a result, with its last output."""
    if output.hangs:
        return f"it did not finish within {TIMEOUT:.0f} s"
    code = output.code or 0
    try:
        end = f"Python was killed by {signal.Signals(-code if code < 0 else code - 128).name}"
    except ValueError:
        end = f"Python exited with {code}"
    last_lines = "\n".join(line for line in printed if line.strip())[-MAX_OUTPUT:]
    return f"{end}: {last_lines}" if last_lines else end

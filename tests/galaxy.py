# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the package and check that Galaxy would import it and that ansible-builder reads its requirements.

    python -m tests.galaxy build/galaxy-venv

galaxy-importer is the program that Galaxy runs on an upload. Its ansible-lint, flake8, ansible-doc and ansible-test
steps are off: `make lint` and `make sanity` run the same programs on the checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
WORK = CHECKOUT / "build" / "galaxy"
IMPORTER_SETTINGS = {
    "GALAXY_IMPORTER_RUN_ANSIBLE_DOC": "false",
    "GALAXY_IMPORTER_RUN_ANSIBLE_LINT": "false",
    "GALAXY_IMPORTER_RUN_ANSIBLE_TEST": "false",
    "GALAXY_IMPORTER_RUN_FLAKE8": "false",
}
REQUIREMENT_FILES = {"pip": "meta/ee-requirements.txt", "bindep": "meta/ee-bindep.txt"}


class GalaxyError(Exception):
    """The package does not meet Galaxy's requirements. The message gives the reason."""


def run(argv: Sequence[str | Path], environment: Mapping[str, str], directory: Path) -> str:
    """Return the output of a command, including stderr; if the command fails, raise GalaxyError with the output."""
    completed = subprocess.run(
        [str(argument) for argument in argv],
        cwd=directory,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if completed.returncode != 0:
        raise GalaxyError(f"{completed.stdout}{argv[0]} failed with exit status {completed.returncode}")
    return completed.stdout


def complaints(importer_output: str) -> list[str]:
    """Return galaxy-importer's warnings and errors, since its exit status reflects only errors."""
    return [line for line in importer_output.splitlines() if line.startswith(("WARNING:", "ERROR:", "CRITICAL:"))]


def requirement_lines(text: str) -> list[str]:
    """Return the requirements in a pip or bindep file, without comments and empty lines."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def build_package(environment: Mapping[str, str], directory: Path) -> Path:
    """Build the package from the checkout into `directory`; return its path."""
    run(["ansible-galaxy", "collection", "build", "--output-path", directory, CHECKOUT], environment, directory)
    (package,) = directory.glob("*.tar.gz")
    return package


def check_import(package: Path, environment: Mapping[str, str]) -> None:
    """Raise GalaxyError if Galaxy would reject the package or warn about it."""
    python = shutil.which("python", path=environment["PATH"]) or sys.executable
    argv = [python, "-m", "galaxy_importer.main", str(package)]
    output = run(argv, {**environment, **IMPORTER_SETTINGS}, package.parent)
    if complaints(output) or "completed successfully" not in output:
        raise GalaxyError(output)


def check_introspection(package: Path, environment: Mapping[str, str]) -> None:
    """Raise GalaxyError if the requirements that ansible-builder finds in the package differ from those in
    REQUIREMENT_FILES.
    """
    collections = package.parent / "collections"
    target = collections / "ansible_collections" / "muster" / "training"
    target.mkdir(parents=True)
    with tarfile.open(package) as archive:
        archive.extractall(target)  # our own archive; Debian's Python 3.11 has no filters
    for kind, source in REQUIREMENT_FILES.items():
        written = package.parent / f"{kind}.txt"
        run(["ansible-builder", "introspect", f"--write-{kind}={written}", collections], environment, package.parent)
        expected = requirement_lines((CHECKOUT / source).read_text(encoding="utf-8"))
        read = requirement_lines(written.read_text(encoding="utf-8")) if written.exists() else []
        if sorted(read) != sorted(expected):
            raise GalaxyError(f"ansible-builder reads {read} from the package, but {source} has {expected}")


def main() -> int:
    """Check the package; print the problems and return the exit status."""
    shutil.rmtree(WORK, ignore_errors=True)
    (WORK / "home").mkdir(parents=True)
    environment = {
        "PATH": f"{Path(sys.argv[1]).absolute() / 'bin'}:{os.environ['PATH']}",
        "HOME": str(WORK / "home"),
        "LC_ALL": "C.UTF-8",
    }
    try:
        package = build_package(environment, WORK)
        check_import(package, environment)
        check_introspection(package, environment)
    except GalaxyError as error:
        print(error)
        return 1
    print(f"galaxy-importer and ansible-builder accept {package.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

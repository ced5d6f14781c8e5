"""Run `ansible-test sanity` on the checkout, with one virtual environment or two.

    python tests/sanity.py pylint .venv             # the test that fails most often, and earliest
    python tests/sanity.py others .venv             # all other tests
    python tests/sanity.py others .venv build/newest  # in the second one, only tests that depend on ansible-core

ROWS=all, as `make test-all` has it, also runs slow tests with little additional coverage: see LEFT_OUT and imports().

ansible-test needs three things that a checkout on a machine with pyenv, or without the Internet, lacks: a physical
directory .../ansible_collections/muster/training, interpreters that are not shims, and its own get-pip.py. All are made
under build/sanity, as is the home directory of the tests: nothing outside the checkout is written.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
WORK = CHECKOUT / "build" / "sanity"
PYTHONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
# ansible-test fetches get-pip.py from the Internet; the pip bundled with every Python suffices.
GET_PIP = "import ensurepip\nensurepip.bootstrap(default_pip=True)\n"
GET_PIP_VERSIONS = ("24_2", "25_2")  # file names in ansible-core 2.19, and in 2.20 to 2.22
# Tests that depend on ansible-core: its loader, its rules for plugins, the Python versions that it supports. All others
# run the same programs on the same files with any ansible-core version.
BY_CORE = ("action-plugin-docs", "ansible-doc", "compile", "ignores", "import", "runtime-metadata", "validate-modules")

# The files that a user gets. ruff and mypy check the tests; pylint takes as long for them as for all of these.
SHIPPED = ("plugins/.*", "roles/.*", "examples/.*")
# ruff, which also formats, and yamllint have already checked for the same.
LEFT_OUT = ("pep8", "yamllint")
# These are run only on nodes: the controller's plugins, which take long to import, are not imported with them.
OF_NODES = ("3.8", "3.9", "3.10")


def copy_collection(target: Path) -> None:
    """Copy the files that git tracks or would track, so that no build artifact is tested."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        check=True,
        capture_output=True,
    ).stdout
    shutil.rmtree(target, ignore_errors=True)
    for name in filter(None, listed.decode().split("\0")):
        source = CHECKOUT / name
        if source.is_file():  # a file may have been deleted but the deletion not yet committed
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    # Without its own repository, ansible-test would find that of the checkout, which ignores build/.
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main"], cwd=target, check=True)


def real_interpreter(version: str) -> Path | None:
    """Return the actual `pythonX.Y` interpreter: on the PATH, a shim that refuses to run may take its place."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for candidate in (f"python{version}", *map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}")))):
        try:
            result = subprocess.run(
                [candidate, "-c", "import sys; print(sys._base_executable)"], check=True, capture_output=True, text=True
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return Path(result.stdout.strip())
    return None


def link_interpreters(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for version in PYTHONS:
        interpreter = real_interpreter(version)
        if interpreter is None:
            print(f"sanity: no Python {version} here, so nothing is compiled or imported with it")
        else:
            (directory / f"python{version}").symlink_to(interpreter)


def pip_configuration() -> str:
    """Return the caller's pip settings as the text of a file: ansible-test passes on neither environment nor home
    directory.
    """
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    settings = {"quiet": "2"}
    for line in listed.splitlines():
        match = re.fullmatch(r"(?:global|install|:env:)\.([\w-]+)='(.*)'", line)
        if match:
            settings[match[1]] = match[2].replace("\\n", "\n    ")
    return "[global]\n" + "".join(
        f"{key} = {value}\n" for key, value in settings.items() if key != "require-virtualenv"
    )


def prepare_home(home: Path) -> None:
    cache = home / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    for version in GET_PIP_VERSIONS:
        (cache / f"get_pip_{version}.py").write_text(GET_PIP)
    pip = home / ".config" / "pip"
    pip.mkdir(parents=True, exist_ok=True)
    (pip / "pip.conf").write_text(pip_configuration())


def options(flag: str, names: Iterable[str]) -> list[str]:
    """Return a flag before each name."""
    return [word for name in names for word in (flag, name)]


def imports(venv: Path, interpreters: Path) -> list[list[str]]:
    """Return the options for import tests, with the oldest node Python available on this machine and the environment's
    own.
    """
    command = [str(CHECKOUT / venv / "bin" / "python"), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    current = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    # Python versions between the two are only used for compiling.
    older = [version for version in OF_NODES if (interpreters / f"python{version}").exists()]
    return [["--test", "import", "--python", version] for version in (*older[:1], current)]


def choices(part: str, number: int, venv: Path, interpreters: Path) -> list[list[str]]:
    """Return the options for each run of ansible-test. number: 0 for the first virtual environment, more for a later
    one.
    """
    everything = os.environ.get("ROWS") == "all"
    if part == "pylint":
        return [["--test", "pylint", *(() if everything else SHIPPED)]]
    if everything:
        return [options("--test", BY_CORE) if number else ["--skip-test", "pylint"]]
    if number:  # the first virtual environment has compiled and imported everything, and unit tests import it again
        return [options("--test", (test for test in BY_CORE if test not in ("compile", "import")))]
    return [options("--skip-test", ("pylint", "import", *LEFT_OUT)), *imports(venv, interpreters)]


def sanity(part: str, number: int, venv: Path) -> list[subprocess.CompletedProcess[str]]:
    """Run ansible-test from a virtual environment, on a copy of the checkout and with its own home."""
    work = WORK / part / venv.name.lstrip(".")  # parts may run in parallel
    collection, home = work / "ansible_collections" / "muster" / "training", work / "home"
    copy_collection(collection)
    prepare_home(home)
    binaries, interpreters = (CHECKOUT / venv / "bin").absolute(), WORK / part / "bin"
    # ansible-test uses the Python that runs it as the controller's Python.
    command = [str(binaries / "python"), str(binaries / "ansible-test"), "sanity"]
    command += ["--local", "--requirements", "--color", "no"]
    environment = {
        **os.environ,
        "HOME": str(home),
        "PATH": os.pathsep.join([str(binaries), str(interpreters), os.environ["PATH"]]),
    }
    return [
        subprocess.run(
            [*command, *chosen],
            cwd=collection,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        for chosen in choices(part, number, venv, interpreters)
    ]


def main() -> int:
    """Run all in parallel: each takes one core."""
    part, *names = sys.argv[1:]
    link_interpreters(WORK / part / "bin")
    print(f"sanity: {part} of ansible-test sanity with {' and '.join(names)}, told when it has ended", flush=True)
    with ThreadPoolExecutor() as pool:
        ended = [*chain(*pool.map(sanity, [part] * len(names), range(len(names)), map(Path, names)))]
    for completed in ended:
        print(f"sanity: {shlex.join(completed.args)}\n{completed.stdout}", flush=True)
    return 1 if any(completed.returncode for completed in ended) else 0


if __name__ == "__main__":
    sys.exit(main())

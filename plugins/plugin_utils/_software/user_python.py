# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rewrite remedies that install packages, for runs in the user's own Python, where site.yml installs nothing."""

from __future__ import annotations

import re
import shlex
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable

MAX_PATH = 300  # number of characters of an interpreter's path
INSTALLED_TAGS = ("python_env", "pytorch", "deepspeed", "flash_attention")  # tags of site.yml that install packages
REQUIREMENTS_TAGS = ["pytorch", "python_env"]  # install all requirements; if pytorch is last, a build of torch
TAG = rf"(?:{'|'.join(INSTALLED_TAGS)})"
COMMAND = rf"ansible-playbook site\.yml --tags (?:\w+,)*{TAG}\b(?:,\w+)*(?: -e \w+=[\w.]*\w)*"
INSTALLS = re.compile(COMMAND)
OPTION = re.compile(r" -e (\w+)=([\w.]+)")
REQUIREMENTS = r"the (?:job|project)'s requirements(?: \(requirements: [^()\n]{0,80}\))?"
# "add numpy<2 to the job's requirements and run COMMAND"
ADDS = re.compile(
    rf"\b(?:add|put) (?P<packages>[^;\n]{{1,200}}?) (?:to|into|in) {REQUIREMENTS}(?: without an upper bound)?"
    rf"(?:(?:,? and|, then) run {COMMAND}| \({COMMAND}\))"
)
LISTS = re.compile(rf"\b(?:add|put) (?P<packages>[^;\n]{{1,200}}?) (?:to|into) {REQUIREMENTS}")
CHANGES = re.compile(rf"\binstall (?P<packages>[^;:\n]{{1,200}}?): update {REQUIREMENTS}, then run {COMMAND}")
UPDATES = re.compile(rf"update {REQUIREMENTS}, then run (?={COMMAND})")
PINS = re.compile(rf"(?P<verb>\b(?:pin|upgrade)\b[^;.\n]{{0,160}}?) in {REQUIREMENTS}")
SPECIFIER = re.compile(r"[A-Za-z][\w.\[\]-]*(?:[<>=!~]=?[\w.]+)?")
MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
# Packages whose names differ from their modules.
PACKAGE_NAMES = {
    "Bio": "biopython",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "google.protobuf": "protobuf",
    "hydra": "hydra-core",
    "ignite": "pytorch-ignite",
    "lightning_fabric": "lightning",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "open_clip": "open-clip-torch",
    "pkg_resources": "setuptools<81",
    "pynvml": "nvidia-ml-py",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
BUILT_FOR_TORCH = ("torchvision", "torchaudio")
NOT_PACKAGES = ("it",)
# Parts of remedies that describe what site.yml chooses.
SITE_ONLY = re.compile(
    r", which chooses a matching torch version and wheel| \(an existing environment keeps its Python: [^()\n]{1,200}\)"
)


def user_python(python: Any, image: Any) -> str:
    """Return the interpreter that the user has set with launch_python, or ""; also "" if the run uses an image.

    Args:
        python: The value of launch_python. The default is a list of the environments of site.yml, separated by colons.
        image: The value of launch_image.
    """
    if not isinstance(python, str) or not python.startswith("/") or ":" in python or image:
        return ""
    return printable(python[:MAX_PATH])


def package_of_module(module: str) -> str:
    """Return the name of the package that provides a module, or "" if the module is a part of an installed package."""
    return PACKAGE_NAMES.get(module, "" if "." in module else module)


def name_missing_package(remedy: str, error: str) -> str:
    """Return a remedy as returned by install_with_pip(), with the name of the package that an import did not find.

    error: the exception, such as "ModuleNotFoundError: No module named 'yaml'".
    """
    match = MISSING_MODULE.search(error)
    package = package_of_module(match[1]) if match else ""
    return remedy.replace(" pip install PACKAGE`", f" pip install {shlex.quote(package)}`") if package else remedy


def pip_command(python: str, packages: str) -> str:
    """Return the command that installs packages into a Python, in backticks. packages: the arguments of pip."""
    return f"`{shlex.quote(python)} -m pip install {packages}` on each node"


def install_with_pip(remedy: str, python: str) -> str:
    """Return a remedy with pip in the user's Python in place of each command that installs packages with site.yml.

    Args:
        remedy: The remedy.
        python: The user's interpreter, as returned by user_python(), or "" to leave the remedy unchanged.
    """
    if not python or INSTALLS.search(remedy) is None:
        return remedy
    for pattern in (ADDS, CHANGES):
        remedy = pattern.sub(lambda match: replace_addition(match, python), remedy)
    remedy = LISTS.sub(r"use \g<packages>", UPDATES.sub("run ", remedy))
    remedy = PINS.sub(r"\g<verb>", remedy)
    remedy = SITE_ONLY.sub("", remedy)
    torch = " ".join(["torch", *(name for name in BUILT_FOR_TORCH if name in remedy)])
    platform = "rocm" if "rocm" in remedy.lower() else "cu"
    return INSTALLS.sub(lambda match: replace_command(match[0], python, torch, platform), remedy)


def replace_addition(match: re.Match[str], python: str) -> str:
    """Return what replaces the addition of packages to the requirements and the command that installs them."""
    packages = match["packages"].rstrip(",").replace('"', "")
    specifiers = packages.split(", ")
    if packages not in NOT_PACKAGES and all(map(SPECIFIER.fullmatch, specifiers)):
        return f"run {pip_command(python, shlex.join(specifiers))}"
    return f"install {packages}: run {pip_command(python, 'PACKAGE')}"


def replace_command(command: str, python: str, torch: str, platform: str) -> str:
    """Return what replaces a command of site.yml in the user's Python; its other tags remain.

    torch: The packages that the tag pytorch stands for, torch first. platform: cu or rocm.
    """
    options = dict(OPTION.findall(command))
    tags = command.split(" --tags ")[1].split(" ")[0].split(",")
    others = ",".join(tag for tag in tags if tag not in INSTALLED_TAGS)
    if "python_env_python" in options:
        version = options["python_env_python"].removeprefix("python")
        return f"set launch_python to an interpreter of Python {version}"
    pip = pip_command(python, packages_of(tags, options, torch, platform))
    return f"ansible-playbook site.yml --tags {others} and {pip}" if others else pip


def packages_of(tags: list[str], options: dict[str, str], torch: str, platform: str) -> str:
    """Return the arguments of pip for what site.yml would install; PACKAGE for what the requirements list.

    platform: The beginning of the name of torch's index: cu or rocm.
    """
    if "flash_attention" in tags:
        return "flash-attn --no-build-isolation"
    if "deepspeed" in tags:
        return "deepspeed"
    if "pytorch" not in tags or tags == REQUIREMENTS_TAGS:
        return "PACKAGE"
    version, cuda = options.get("pytorch_version", "auto"), options.get("pytorch_cuda")
    if version != "auto":
        torch = torch.replace("torch", f"torch=={version}", 1)
    if cuda is not None:
        build = f"{platform}VERSION" if cuda == "auto" else f"cu{cuda.replace('.', '')}"
        return f"--force-reinstall {torch} --index-url https://download.pytorch.org/whl/{build}"
    return f"--upgrade {torch}" if version == "auto" else torch

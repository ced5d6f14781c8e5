"""Create test doubles in /srv, for tests without network access or GPUs: a source tree, a conda installer, wheels."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

HERE = f"cp{sys.version_info[0]}{sys.version_info[1]}"

PROJECT = """[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"
[project]
name = "project"
version = "1.0"
[project.optional-dependencies]
train = ["colorama"]
[tool.setuptools]
py-modules = ["project"]
"""

# Imitates the parts of conda that the role uses: environments are created with the system Python.
CONDA = r"""#!/bin/sh
set -eu
root=${0%/bin/conda}
echo "$*" >>"$root/calls"
url=https://conda.anaconda.org/conda-forge/linux-64
case $1 in
  create)
    prefix= file=
    while [ $# -gt 0 ]; do
      case $1 in
        --prefix) prefix=$2 ;;
        --file) file=$2 ;;
      esac
      shift
    done
    if [ -n "$file" ]; then
      [ "$(head -n 1 "$file")" = @EXPLICIT ]
      tail -n +2 "$file" | while read -r path; do [ "$(cat "$path")" = "${path##*/}" ]; done
    else
      mkdir -p "$root/pkgs"
      for name in python-3.12.9-0.conda cuda-12.4.0-0.tar.bz2; do printf %s "$name" >"$root/pkgs/$name"; done
    fi
    python3 -m venv --without-pip "$prefix"
    ;;
  list) printf '@EXPLICIT\n%s/python-3.12.9-0.conda\n%s/cuda-12.4.0-0.tar.bz2\n' $url $url ;;
esac
"""
INSTALLER = f"""#!/bin/sh
# bash INSTALLER -b -p DIRECTORY
set -eu
[ "$1 $2" = '-b -p' ]
mkdir -p "$3/bin"
cat >"$3/bin/conda" <<'CONDA'
{CONDA}CONDA
chmod 755 "$3/bin/conda"
"""

TORCH = {
    "torch/__init__.py": "from torch import _C, version\n__version__ = '2.8.0+cu126'\n"
    "class cuda:\n    is_available = staticmethod(lambda: False)\n",
    "torch/_C.py": "_GLIBCXX_USE_CXX11_ABI = True\n",
    "torch/version.py": "cuda = '12.6'\n",
}
FLASH = {"flash_attn/__init__.py": "__version__ = '2.8.3'\n", "flash_attn_2_cuda.py": ""}


def make_wheel(path: Path, version: str, files: dict[str, str]) -> None:
    """Create a wheel; the version in its name may have additional parts."""
    name = path.name.split("-")[0]
    info = f"{name}-{version}.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {'-'.join(path.stem.split('-')[2:])}\n",
    }
    contents[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in [*contents, f"{info}/RECORD"])
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in contents.items():
            archive.writestr(file, text)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


write(Path("/srv/project/pyproject.toml"), PROJECT)
write(Path("/srv/project/project.py"), "")
if sys.argv[1] == "first":
    write(Path("/srv/conda/installer.sh"), INSTALLER)
    make_wheel(Path("/srv/torch/torch-2.8.0+cu126-py3-none-any.whl"), "2.8.0+cu126", TORCH)
    name = f"flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-{HERE}-{HERE}-linux_x86_64.whl"
    make_wheel(Path("/srv/wheels/v2.8.3") / name, "2.8.3", FLASH)

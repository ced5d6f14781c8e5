"""Package indexes in directories, with small wheels, and a real pip for the role python_env. Needs no network."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pip


def add_wheel(
    index: Path, name: str, version: str, requires: Sequence[str] = (), files: Mapping[str, str] | None = None
) -> Path:
    """Add a wheel to an index; return its path. files: its modules, by default one with its version."""
    path = index / name / f"{name}-{version}-py3-none-any.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    texts = {
        **(files or {f"{name}.py": f"VERSION = {version!r}\n"}),
        f"{info}/METADATA": "\n".join(
            [
                "Metadata-Version: 2.1",
                f"Name: {name}",
                f"Version: {version}",
                *(f"Requires-Dist: {r}" for r in requires),
            ]
        )
        + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = (
        "".join(f"{file},{hash_of(text)},{len(text.encode())}\n" for file, text in texts.items()) + f"{info}/RECORD,,\n"
    )
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**texts, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)
    wheels = sorted(file.name for file in path.parent.glob("*.whl"))
    (path.parent / "index.html").write_text("".join(f'<a href="{wheel}">{wheel}</a>\n' for wheel in wheels))
    return path


def hash_of(text: str) -> str:
    """Return a file's hash in the format of RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
    return f"sha256={digest}"


def store_pip(directory: Path) -> Path:
    """Make a wheel of the pip of this interpreter in a directory; return its path."""
    spec = importlib.util.find_spec("pip")
    assert spec and spec.origin
    package = Path(spec.origin).parent
    path = directory / f"pip-{pip.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(path for path in package.rglob("*") if path.suffix in (".py", ".pem", ".txt")):
            archive.write(file, str(Path("pip") / file.relative_to(package)))
    return path

"""Install a program from this collection in a directory, as roles do on nodes."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.muster.training.plugins.plugin_utils._node_call.program_files import program_sources


def install(module: str, directory: Path) -> Path:
    """Write a program's files below a directory; return the path of its script."""
    sources = program_sources(module)
    for name, text in sources.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory / next(iter(sources))

"""Commands as a person types them who has this collection and nothing beside it: no ansible.cfg, an empty home."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def give_collection(directory: Path) -> None:
    """Put the checkout where typed() has Ansible look for collections."""
    namespace = directory / "collections" / "ansible_collections" / "muster"
    namespace.mkdir(parents=True)
    (namespace / "training").symlink_to(CHECKOUT)


def typed(
    directory: Path, words: list[str], timeout: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command there, to its end; what it needs of the environment besides is given. stdout holds stderr too."""
    return subprocess.run(
        words,
        check=False,
        cwd=directory,
        env={
            "PATH": f"{directory}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(directory),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_COLLECTIONS_PATH": str(directory / "collections"),
            "ANSIBLE_NOCOLOR": "1",
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )

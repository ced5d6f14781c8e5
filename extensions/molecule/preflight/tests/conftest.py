"""Fixtures: a healthy cluster of four test hosts for this scenario only, with correct names and an interpreter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import Lab
from tests.support import drive
from tests.support.cluster import Cluster

PACKAGES = {
    "torch": "2.7.1",
    "nvidia_nccl_cu12": "2.26.2",
    "flash_attn": "2.8.3",
    "deepspeed": "0.19.8",
    "transformers": "4.51.0",
    "numpy": "2.2.6",
    "accelerate": "1.6.0",
    "lightning": "2.5.1",
    "nvidia_cudnn_cu12": "9.7.1.26",
}
# A virtual environment as created by `python3 -m venv`, with packages that consist only of a name and a version.
MAKE_JOB = """
set -e
version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
site=/opt/job/lib/python$version/site-packages
mkdir -p /opt/job/bin $site/torch/lib
ln -s /usr/bin/python3 /opt/job/bin/python
printf 'home = /usr/bin\\ninclude-system-site-packages = false\\n' > /opt/job/pyvenv.cfg
echo "cuda: Optional[str] = '12.8'" > $site/torch/version.py
printf 'sm_75 sm_80 sm_86 sm_90 sm_100 sm_120\\0' > $site/torch/lib/libtorch_python.so
ln -s $site /opt/site
echo 'print(1)' > /opt/job/train.py
echo 'import library' > /opt/job/with_library.py
touch $site/library.py
""" + "\n".join(f"mkdir $site/{name}-{version}.dist-info" for name, version in PACKAGES.items())


@pytest.fixture(scope="session")
def prepared() -> Iterator[Lab]:
    """Yield the hosts."""
    with drive.own_lab("preflight", nodes=4) as lab:
        cluster = Cluster(lab)
        lines = "\n".join(["127.0.0.1 localhost", *(f"{node.address} {node.name}" for node in lab.nodes)])
        for node in lab.nodes:
            cluster.sh(node.name, f"rm -rf /opt/job /opt/site; cat > /etc/hosts <<'END'\n{lines}\nEND\n{MAKE_JOB}")
        yield lab


@pytest.fixture
def cluster(prepared: Lab) -> Iterator[Cluster]:
    """Yield a cluster that a test may break; repair it for the next test."""
    cluster = Cluster(prepared)
    yield cluster
    cluster.mend()

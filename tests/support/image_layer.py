"""The layer of an image for the tests' jobs, made from the test host, since no registry is used."""

from __future__ import annotations

import sys

from tests.support import drive

PACKAGES = "usr/local/lib/python3.11/dist-packages"
SITE_PACKAGES = drive.CHECKOUT / ".venv/lib/python3.11/site-packages"
# The checkout, and the Python of its environment; the system's Python is part of the layer, and would be hidden by
# /usr.
MOUNTS = [f"{path}:{path}:ro" for path in (str(drive.CHECKOUT), sys.base_prefix) if path != "/usr"]


def make_layer(tar: str) -> str:
    """Return lines of a shell script that pack a shell, Python, pip, Open MPI, pdsh and a wheel into a tar file.

    Its Python finds torch and DeepSpeed in the checkout's environment, if that is mounted.
    """
    return f"""
python3 - << 'END'
import os, zipfile
os.makedirs("/wheels", exist_ok=True)
with zipfile.ZipFile("/wheels/probe-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("probe.py", "answer = 42")
    wheel.writestr("probe-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: probe\\nVersion: 1.0\\n")
    wheel.writestr("probe-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr("probe-1.0.dist-info/RECORD", "")
os.makedirs("/{PACKAGES}", exist_ok=True)
with open("/{PACKAGES}/checkout.pth", "w") as paths:
    paths.write("{SITE_PACKAGES}\\n")
END
tar -C / -cf {tar} --no-recursion etc usr usr/bin usr/lib usr/share usr/local usr/local/lib \\
  usr/local/lib/python3.11 {PACKAGES} --recursion --exclude=perl \\
  --exclude='*.a' --exclude='tmp/*' --exclude='libLLVM*' bin lib64 tmp usr/lib64 usr/bin/env usr/bin/dash usr/bin/sh \\
  usr/bin/rm usr/bin/base64 usr/bin/python3 usr/bin/python3.11 lib usr/lib/python3.11 usr/lib/x86_64-linux-gnu wheels \\
  etc/alternatives etc/openmpi usr/bin/mpirun usr/bin/mpirun.openmpi usr/bin/orterun usr/bin/orted usr/share/openmpi \
  usr/bin/ompi_info usr/bin/bash usr/bin/pdsh usr/bin/pdsh.bin {PACKAGES}/checkout.pth
tar -C {SITE_PACKAGES} --transform 's,^,usr/lib/python3.11/,' -rf {tar} pip
rm -r /wheels /{PACKAGES}/checkout.pth
"""

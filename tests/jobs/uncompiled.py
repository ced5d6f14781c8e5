"""Run a script without DeepSpeed's own operations, which DeepSpeed would compile: test hosts have no compiler.

uncompiled.py SCRIPT ARGUMENTS
"""

from __future__ import annotations

import runpy
import sys

import deepspeed


def main() -> None:
    deepspeed.ops.__compatible_ops__.clear()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()

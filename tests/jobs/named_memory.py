"""A job that shares named memory and reopens it in each step, like the workers of a data loader. Does not need
torch.
"""

from __future__ import annotations

import time
from multiprocessing import shared_memory


def main() -> None:
    shared = shared_memory.SharedMemory(create=True, size=8)
    try:
        print(f"shares {shared.name}", flush=True)
        step = 0
        while True:
            shared_memory.SharedMemory(shared.name).close()
            print(f"step {step}", flush=True)
            step += 1
            time.sleep(0.1)
    finally:
        shared.unlink()


if __name__ == "__main__":
    main()

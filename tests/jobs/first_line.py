"""A job that records when its first line ran: first_line.py FILE [torch]. With torch, it then forms a process group,
and ends.
"""

from __future__ import annotations

import sys
import time

FIRST_LINE = time.time()


def main(path: str, *more: str) -> None:
    with open(path, "a", encoding="ascii") as stream:
        stream.write(f"{FIRST_LINE}\n")
    if more == ("torch",):
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        ranks = torch.ones(1)
        dist.all_reduce(ranks)
        if ranks.item() != dist.get_world_size():
            raise SystemExit(f"{ranks.item():g} ranks in a world of {dist.get_world_size()}")
        dist.destroy_process_group()


if __name__ == "__main__":
    # DeepSpeed's launcher adds this argument
    main(*(word for word in sys.argv[1:] if not word.startswith("--local_rank")))

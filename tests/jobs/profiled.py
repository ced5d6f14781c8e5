"""A data-parallel job on the CPU that runs until a file appears; one rank is late in each step.

Usage: profiled.py LATE_RANK SECONDS FILE
"""

import os
import sys
import time

import torch
import torch.distributed as dist

# before init_process_group: otherwise one of gloo's threads may abort the interpreter's shutdown
import torch.distributed.nn

LATE, SECONDS, FILE = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
if "RANK" not in os.environ:  # the launcher env, with one rank on each node
    os.environ["RANK"] = os.environ["NODE_RANK"]
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = 0
while True:
    over = torch.tensor([float(os.path.exists(FILE))])
    dist.broadcast(over, 0)
    if over.item():
        break
    if dist.get_rank() == LATE:
        time.sleep(SECONDS)
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    print(f"step {step}: loss 0.5", flush=True)
dist.destroy_process_group()

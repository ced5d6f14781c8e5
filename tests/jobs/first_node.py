"""A plain script that reads its rank from the environment, with one process per node. It has no dependencies."""

from __future__ import annotations

import os
import socket

names = ("NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME")
print(socket.gethostname(), *(f"{name}={os.environ[name]}" for name in names), flush=True)
unset = [name for name in ("RANK", "LOCAL_RANK", "TORCHELASTIC_RUN_ID") if name in os.environ]
print(f"set although they must not be: {unset}", flush=True)

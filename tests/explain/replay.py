"""Act as a rank of a case: print its output and end in the same way. Arguments: the file of cases, and the case."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

case = next(case for case in json.loads(Path(sys.argv[1]).read_text()) if case["case"] == sys.argv[2])
rank = os.environ["NODE_RANK"]
time.sleep(1)  # wait until the other node's rank has started
sys.stderr.write(case["ranks"].get(rank, ""))
sys.stderr.flush()
end = case["exit"][rank]
if end is None:
    time.sleep(60)  # wait until the run ends
time.sleep(1 + 2 * case.get("order", [rank]).index(rank))
if isinstance(end, str):
    os.kill(os.getpid(), getattr(signal, end))
os._exit(end)

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulate a distance across the internet: an ssh ProxyCommand that forwards all bytes with a delay, in both
directions.

    ssh -o ProxyCommand='python delay.py %h %p 75' HOST

adds 150 ms to each round trip. The bandwidth is not limited. Standard library only.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable


def hand_on(read: Callable[[], bytes], write: Callable[[bytes], object], seconds: float) -> None:
    """Write each piece that was read after the delay; an empty piece marks the end."""
    pieces: queue.Queue[tuple[float, bytes]] = queue.Queue()

    def take() -> None:
        piece = b"-"
        while piece:
            try:
                piece = read()
            except OSError:
                piece = b""
            pieces.put((time.monotonic() + seconds, piece))

    threading.Thread(target=take, daemon=True).start()
    while True:
        due, piece = pieces.get()
        time.sleep(max(0.0, due - time.monotonic()))
        if not piece:
            return
        write(piece)


def main(host: str, port: str, milliseconds: str) -> None:
    """Connect standard input and output to a port."""
    seconds = float(milliseconds) / 1000
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def out() -> None:
            hand_on(lambda: os.read(0, 65536), connection.sendall, seconds)
            connection.shutdown(socket.SHUT_WR)

        threading.Thread(target=out, daemon=True).start()
        hand_on(lambda: connection.recv(65536), lambda piece: os.write(1, piece), seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])

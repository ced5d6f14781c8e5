"""Compare what this machine's resolver says of the names of a block of /etc/hosts with the block.

Reads the block from standard input, and prints a line for each difference. Gloo, torchrun and MPI ask in these ways.
"""

from __future__ import annotations

import socket
import sys


def answers(name: str) -> list[tuple[str, list[str]]]:
    """What the resolver says of a name, question by question; an answer is a list of addresses or names."""
    said = []
    for question, ask in (
        ("gethostbyname", lambda: [socket.gethostbyname(name)]),
        ("getaddrinfo", lambda: sorted({str(found[4][0]) for found in socket.getaddrinfo(name, None)})),
        ("getfqdn", lambda: [socket.getfqdn(name)]),
    ):
        try:
            said.append((question, ask()))
        except OSError as error:
            said.append((question, [f"nothing ({error})"]))
    return said


def differences(block: str) -> list[str]:
    """A line for each answer that is not what the block says."""
    found = []
    canonical: dict[str, str] = {}
    for address, *names in (line.split() for line in block.splitlines() if line and not line.startswith("#")):
        # getfqdn() takes the first line of the address, and of it the first name with a dot.
        full = canonical.setdefault(address, next((name for name in names if "." in name), names[0]))
        for name in names:
            for question, said in answers(name):
                wanted = full if question == "getfqdn" else address
                if said != [wanted] and not (question == "gethostbyname" and ":" in address):  # it knows IPv4 only
                    found.append(f"{question}({name}) says {', '.join(said)}, the block {wanted}")
    return found


if __name__ == "__main__":
    print("\n".join(differences(sys.stdin.read())))

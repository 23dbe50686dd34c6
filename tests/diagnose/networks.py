"""Network namespaces that are joined by a bridge, one for each rank of a job on hosts of their own."""

from __future__ import annotations

import os
import queue
import subprocess

RANKS = 4
SETS = 3


class Networks:
    """Sets of namespaces; `take` lends one to a trial."""

    def __init__(self) -> None:
        self._free: queue.Queue[str] = queue.Queue()
        self._names = [f"dgn{os.getpid()}x{number}r" for number in range(SETS)]
        for number, name in enumerate(self._names):
            hub = f"{name}hub"
            lines = [f"ip netns add {hub}", f"ip -n {hub} link add br0 type bridge", f"ip -n {hub} link set br0 up"]
            for rank in range(RANKS):
                host = f"{name}{rank}"
                lines += [
                    f"ip netns add {host}",
                    f"ip link add eth0 netns {host} type veth peer name v{rank} netns {hub}",
                    f"ip -n {hub} link set v{rank} master br0 up",
                    f"ip -n {host} addr add 10.88.{number}.{rank + 1}/24 dev eth0",
                    f"ip -n {host} link set eth0 up",
                    f"ip -n {host} link set lo up",
                ]
            subprocess.run(["sh", "-ec", "\n".join(lines)], check=True)
            self._free.put(name)

    def take(self) -> str:
        """A free set of namespaces, with no rules."""
        name = self._free.get()
        for rank in range(RANKS):
            subprocess.run(["ip", "netns", "exec", f"{name}{rank}", "nft", "flush ruleset"], check=True)
        return name

    def address(self, name: str, rank: int) -> str:
        """The address of a rank."""
        return f"10.88.{self._names.index(name)}.{rank + 1}"

    def give_back(self, name: str) -> None:
        """Ends the loan."""
        self._free.put(name)

    def end(self) -> None:
        """Removes them."""
        for name in self._names:
            for suffix in (*range(RANKS), "hub"):
                subprocess.run(["ip", "netns", "del", f"{name}{suffix}"], check=False)

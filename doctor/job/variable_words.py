"""A name that has other parts than the variable that was meant: NCCL_IB_GID_IDX, HCCL_CONN_TIMEOUT, GLOO_IFNAME. Pure.

Two names mean the same where their parts are the same in any order, each in one of its usual forms. A name that lacks
one word of another counts as well, where the rest is a word that libraries use and scripts do not: a script's own
NCCL_TIMEOUT, ASCEND_HOME or NCCL_PORT is nobody's slip.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

FAMILIES = frozenset(("NCCL", "HCCL", "GLOO", "TP", "TORCH", "ASCEND", "MS", "MASTER", "PYTORCH", "OMP", "UCX"))
_FORMS = """
ADDRESS ADDR
ALGORITHM ALGO
BUFFER BUF
BUFFSIZE BUF SIZE
BUFSIZE BUF SIZE
CHANNELS NCHANNELS
CHECKING CHECK
CONN CONNECT
CONNECTION CONNECT
COUNT CNT
DEVICE DEVICES
DISABLED DISABLE
ENABLED ENABLE
IDX INDEX
IFACE IFNAME
IFC IFNAME
INTERFACE IFNAME
INTERFACES IFNAME
LVL LEVEL
MAXIMUM MAX
MINIMUM MIN
NETIF IFNAME
PROTOCOL PROTO
SECONDS SEC
SECS SEC
SOCK SOCKET
SUBSYSTEM SUBSYS
SUBSYSTEMS SUBSYS
SZ SIZE
THREADS NTHREADS
TMOUT TIMEOUT
TOPOLOGY TOPO
"""
_COMMON_TEXT = """
ADDR BUF CACHE CNT CONFIG DEBUG DEVICES DIR DISABLE DUMP ENABLE ERROR EXEC FILE FORMAT GROUP HANDLING HOME HOST ID INDEX
INFO INSTALL IP LEVEL LIB LIBRARY LOG MAX MIN MODE NAME NODE NTHREADS NUM OPTIONS PATH PLUGIN PORT PROCESS RANGE RANK
RATIO RETRY ROLE ROOT SAVE SEC SIZE STATUS TEST TESTS TIME TIMEOUT TYPE USE VERSION WAIT WORK WORKER
"""
_COMMON = frozenset(_COMMON_TEXT.split())
"""Parts of which a script makes names of its own."""
_BY_NAME = {
    "ASCEND_DEVICES": "ASCEND_RT_VISIBLE_DEVICES",
    "GLOO_SOCKET_NIC": "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_NIC": "NCCL_SOCKET_IFNAME",
    "NPU_VISIBLE_DEVICES": "ASCEND_RT_VISIBLE_DEVICES",
}
"""Names of which no word shows what was meant."""

Parts = tuple[str, ...]
_TABLE: dict[str, Parts] = {line.split()[0]: tuple(line.split()[1:]) for line in _FORMS.strip().splitlines()}


class WordIndex:
    """The documented names by their parts."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._by_words: dict[Parts, list[str]] = defaultdict(list)
        self._by_rest: dict[Parts, list[str]] = defaultdict(list)
        for name in sorted(self._names):
            parts = _parts(name)
            self._by_words[parts].append(name)
            if parts and name.partition("_")[0] in FAMILIES:
                for word in set(parts) - FAMILIES - _COMMON:
                    rest = list(parts)
                    rest.remove(word)
                    self._by_rest[tuple(rest)].append(name)

    def intended(self, name: str) -> str:
        """The documented variable that was meant; empty for none, or where several would do.

        >>> index = WordIndex(["GLOO_SOCKET_IFNAME", "HCCL_CONNECT_TIMEOUT"])
        >>> index.intended("GLOO_INTERFACE"), index.intended("HCCL_CONN_TIMEOUT"), index.intended("HCCL_TIMEOUT")
        ('GLOO_SOCKET_IFNAME', 'HCCL_CONNECT_TIMEOUT', '')
        """
        if name in _BY_NAME:
            return _BY_NAME[name]
        if name in self._names or name.partition("_")[0] not in FAMILIES or name.count("_") > 16:
            return ""
        parts = _parts(name)
        candidates = set(self._by_words.get(parts, ()))
        candidates |= {other for other in (f"TORCH_{name}", name.removeprefix("TORCH_")) if other in self._names}
        if not candidates and set(parts) - FAMILIES - _COMMON:
            candidates = set(self._by_rest.get(parts, ()))
        return candidates.pop() if len(candidates) == 1 else ""


def _parts(name: str) -> Parts:
    """Each in its usual form, in the order of the alphabet: the order in the name is of no account."""
    counted = Counter(form for word in name.split("_") for form in _TABLE.get(word, (word,)) if form)
    return tuple(sorted(counted.elements()))

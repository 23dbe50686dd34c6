"""Which host has answered another one in the second round: each has a key of its own, and the controller verifies."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from doctor.remote.runtime.keyed_hash import is_keyed_hash

PROOF_CHARS = 32


def tasks_with_keys(hosts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """For each host the run's key, one of its own that no other host gets, and the nonce of its calls.

    With the run's key alone, any host could answer in the name of another one.
    """
    key = os.urandom(32).hex()
    return {
        host: {"host": host, "key": key, "own_key": os.urandom(32).hex(), "nonce": os.urandom(16).hex()}
        for host in hosts
    }


def proven_host(said: object, role: bytes, caller: str, tasks: Mapping[str, Any]) -> str:
    """The host that has answered a caller, of ``[name, proof]`` as the caller reports it; empty for none."""
    match said:
        case [str(name), str(proof)] if name in tasks and len(proof) == PROOF_CHARS and proof.isalnum():
            key, nonce = (bytes.fromhex(text) for text in (tasks[name]["own_key"], tasks[caller]["nonce"]))
            try:
                return name if is_keyed_hash(bytes.fromhex(proof), key, role, nonce, name.encode()) else ""  # type: ignore[no-untyped-call]
            except ValueError:
                return ""
    return ""

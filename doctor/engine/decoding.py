"""Types made ready for msgspec before threads decode them."""

from __future__ import annotations

from typing import Any

import msgspec


def prepare_decoding(*types: Any) -> None:
    """Builds what msgspec needs to decode ``types``, in the thread that imports the caller's module.

    msgspec builds it when a type is first decoded, without a lock: two threads that are first at once can crash the
    interpreter (SIGSEGV). Every module whose types are decoded in threads calls this at its end, as in

    >>> prepare_decoding(dict[str, int])
    """
    for kind in types:
        msgspec.json.Decoder(kind)

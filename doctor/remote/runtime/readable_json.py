"""JSON that every reader takes, with any bytes in a host's names and variables."""

import json


def strict_json(data):
    """The same JSON in ASCII, with `?` for each byte of this host that is not UTF-8, and for half a surrogate pair.

    Python keeps such a byte as half a pair (PEP 383), as in the value of a variable: no strict reader takes it.
    """
    if b"\\ud" not in data:
        return data
    text = json.dumps(json.loads(data.decode("ascii")), ensure_ascii=False).encode("utf-8", "replace")
    return json.dumps(json.loads(text.decode("utf-8")), separators=(",", ":")).encode("ascii")

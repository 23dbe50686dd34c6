"""The keyed hash by which hosts prove that they hold the run's key, and which host they are: HMAC-SHA256 (RFC 2104)."""


def keyed_hash(key, role, *parts):
    """32 bytes for one role: what one end sends is no proof of the other. All `parts` but the last have fixed sizes."""
    import hmac

    return hmac.new(key, role + b"".join(parts), "sha256").digest()


def is_keyed_hash(proof, key, role, *parts):
    """Whether `proof` is the hash, or as many of its first bytes as it has: 16 or more."""
    import hmac

    return len(proof) >= 16 and hmac.compare_digest(bytes(proof), keyed_hash(key, role, *parts)[: len(proof)])


def make_proof(task, role, nonce):
    """What a host answers to a call with `nonce`: its name, proven by its own key, which the controller has as well.

    The run's key, which all hosts have, covers it: so a caller tells it from what a stranger says.
    """
    name = task["host"].encode()
    body = keyed_hash(bytes.fromhex(task["own_key"]), role, bytes.fromhex(nonce), name)[:16] + name
    return keyed_hash(bytes.fromhex(task["key"]), role, bytes.fromhex(nonce), body)[:16] + body


def read_proof(task, role, data):
    """[name, proof] of an answer to a call of this host, for the controller to verify; None for a stranger's."""
    if len(data) <= 32 or not is_keyed_hash(
        data[:16], bytes.fromhex(task["key"]), role, bytes.fromhex(task["nonce"]), data[16:]
    ):
        return None
    return [data[32:].decode("utf-8", "replace"), data[16:32].hex()]

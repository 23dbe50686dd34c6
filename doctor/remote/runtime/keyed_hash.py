"""The keyed hash by which hosts prove to each other that they hold the run's key: HMAC-SHA256 (RFC 2104)."""


def keyed_hash(key, role, *parts):
    """32 bytes for one role: what one end sends is no proof of the other. All `parts` but the last have fixed sizes."""
    import hmac

    return hmac.new(key, role + b"".join(parts), "sha256").digest()


def is_keyed_hash(proof, key, role, *parts):
    """Whether `proof` is the hash, or as many of its first bytes as it has: 16 or more."""
    import hmac

    return len(proof) >= 16 and hmac.compare_digest(bytes(proof), keyed_hash(key, role, *parts)[: len(proof)])

"""How the two ends of a connection prove to each other that they belong to the run.

The listener sends a random challenge. The caller answers with a nonce, its host's number, what it wants, and a keyed
hash (HMAC-SHA256 with the run's token) of all of that and the challenge. Only then does the listener say anything: its
host's number and port, with a keyed hash that covers the caller's nonce. Nothing that was recorded serves twice.
"""

import struct

from doctor.remote.runtime.keyed_hash import is_keyed_hash, keyed_hash

CHALLENGE_SIZE = 16
CALL = struct.Struct("!16sHcI")  # nonce, number of the caller's host, what it wants, bytes
CALL_SIZE = CALL.size + 32
REPLY = struct.Struct("!HH")  # number of the listener's host, its port
REPLY_SIZE = REPLY.size + 32
PING, BULK, SINK, ECHO = b"p", b"b", b"s", b"e"


def make_call(token, challenge, nonce, host, wish, size):
    """What a caller sends. `size`: bytes of a bulk transfer in each direction."""
    body = CALL.pack(nonce, host, wish, size)
    return body + keyed_hash(token, b"call", challenge, body)


def read_call(token, challenge, data):
    """(nonce, number of the caller's host, wish, bytes); None for a stranger's."""
    body = bytes(data[: CALL.size])
    proven = is_keyed_hash(data[CALL.size :], token, b"call", challenge, body)
    return CALL.unpack(body) if proven else None


def make_reply(token, challenge, nonce, host, port):
    """What a listener answers to a call that it has verified."""
    body = REPLY.pack(host, port)
    return body + keyed_hash(token, b"reply", challenge, nonce, body)


def read_reply(token, challenge, nonce, data):
    """(number of the listener's host, its port); None for a stranger's."""
    body = bytes(data[: REPLY.size])
    proven = is_keyed_hash(data[REPLY.size :], token, b"reply", challenge, nonce, body)
    return REPLY.unpack(body) if proven else None

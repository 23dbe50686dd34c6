"""How the two ends of a connection prove to each other that they belong to the run, and the listener which host it is.

The listener sends a random challenge. The caller answers with a nonce, its host's number, what it wants, and a keyed
hash (HMAC-SHA256 with the run's token) of all of that and the challenge. Only then does the listener say anything: its
host's number and port, with a keyed hash that covers the caller's nonce. Nothing that was recorded serves twice.

All hosts have the token. A second keyed hash in the reply is by a key that only the listener, that caller and the
controller have: no host answers in the name of another one.
"""

import struct

from doctor.remote.runtime.keyed_hash import is_keyed_hash, keyed_hash

CHALLENGE_SIZE = 16
CALL = struct.Struct("!16sHcI")  # nonce, number of the caller's host, what it wants, bytes
CALL_SIZE = CALL.size + 32
REPLY = struct.Struct("!HH")  # number of the listener's host, its port
REPLY_SIZE = REPLY.size + 32 + 16
PING, BULK, SINK, ECHO = b"p", b"b", b"s", b"e"


def pair_key(own_key, caller):
    """What the host with this key of its own answers a caller with, by the number of the caller's host."""
    return keyed_hash(own_key, b"pair", struct.pack("!H", caller))


def is_proof_of_host(key, host, port, proof):
    """Whether `proof`, a challenge, a nonce and what came for them, is an answer by this key."""
    return is_keyed_hash(proof[32:], key, b"host", proof[:32], REPLY.pack(host, port))


class RunKeys:
    """A host of the run: its number, and the keys by which it proves itself and knows others."""

    def __init__(self, host, token, own_key):
        self.host, self.token, self.own_key = host, token, own_key
        self.peer_keys = {}  # of the hosts that it calls, by their numbers

    def make_call(self, challenge, nonce, wish, size):
        """What a caller sends. `size`: bytes of a bulk transfer in each direction."""
        body = CALL.pack(nonce, self.host, wish, size)
        return body + keyed_hash(self.token, b"call", challenge, body)

    def read_call(self, challenge, data):
        """(nonce, number of the caller's host, wish, bytes); None for a stranger's."""
        body = bytes(data[: CALL.size])
        proven = is_keyed_hash(data[CALL.size :], self.token, b"call", challenge, body)
        return CALL.unpack(body) if proven else None

    def make_reply(self, caller, challenge, nonce, port):
        body, key = REPLY.pack(self.host, port), pair_key(self.own_key, caller)
        by_token = keyed_hash(self.token, b"reply", challenge, nonce, body)
        return body + by_token + keyed_hash(key, b"host", challenge, nonce, body)[:16]

    def read_reply(self, peer, challenge, nonce, data):
        """(number of the listener's host, its port, what proves the host); None for a stranger's.

        The proof of another host than `peer` is the controller's to verify.
        """
        body, by_token = bytes(data[: REPLY.size]), data[REPLY.size : -16]
        if not is_keyed_hash(by_token, self.token, b"reply", challenge, nonce, body):
            return None
        host, port = REPLY.unpack(body)
        proof = challenge + nonce + bytes(data[-16:])
        if host == peer and not is_proof_of_host(self.peer_keys.get(peer, b""), host, port, proof):
            return None
        return host, port, proof

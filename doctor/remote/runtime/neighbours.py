"""Asks neighbours for their hardware addresses, as the kernel would (ARP, RFC 826)."""

import struct
import time

from doctor.remote.runtime.netlink import listed_addresses, name_text, netlink_entries

ENOUGH = 2  # answers: one may be to the kernel, which asks a host that it knows by its hardware address alone
TURNS = 5


def ask_neighbours(targets, seconds):
    """The hardware address that answers for each of these IPv4 addresses, in bytes; none where no answer comes.

    All hosts of a network are asked anew: what the kernel knows may be hours old, or learned from what the other host
    has sent by itself. Without addresses that are behind a router, of which the kernel was told, or of a network other
    than Ethernet. Raises: OSError, as without CAP_NET_RAW.
    """
    import _socket as socket

    frames = {target: frame for target, frame in _frames() if socket.inet_ntoa(target) in targets}
    answers = {target: [] for target in frames}
    asker = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0608)  # ETH_P_ARP, in the network's order
    try:
        for _ in range(TURNS):
            asked = [target for target in frames if len(answers[target]) < ENOUGH]
            for target in asked:
                name, frame = frames[target]
                try:
                    asker.sendto(frame, (name, 0x0806))
                except OSError:
                    pass  # a rule of this host drops it, or the interface is down
            end = time.monotonic() + seconds / TURNS
            waiting = set(asked)
            while waiting and time.monotonic() < end:
                asker.settimeout(max(0.001, end - time.monotonic()))
                try:
                    frame = asker.recv(64)
                except OSError:
                    break  # no answer in time
                if frame[20:22] == b"\0\2" and frame[28:32] in waiting:
                    answers[frame[28:32]].append(frame[22:28])
                    waiting.remove(frame[28:32])
    finally:
        asker.close()
    return {socket.inet_ntoa(target): cards[0] if len(cards) >= ENOUGH else b"" for target, cards in answers.items()}


def _frames():
    """Of each neighbour that the kernel has asked for by itself: its address, the interface and the question."""
    links = {}
    for entry, values in netlink_entries(18, 0, 16):
        kind, index, flags = struct.unpack("=2xHiI4x", entry)
        if kind == 1 and not flags & 0x80:  # ARPHRD_ETHER, IFF_NOARP
            links[index] = name_text(values.get(3, b"")), values.get(1, b"")
    own = {}
    for index, family, value, prefix, _ in listed_addresses():
        if family == 2 and index in links:
            own.setdefault(index, []).append((value, prefix))
    for entry, values in netlink_entries(30, 2, 12):
        index, state, flags = struct.unpack("=4xiHBx", entry)
        target = values.get(1, b"")
        if index in own and len(target) == 4 and not state & 0xC0 and not flags & 0x18:
            # Neither NUD_NOARP nor NUD_PERMANENT, which it was told; nor NTF_PROXY, nor NTF_EXT_LEARNED.
            name, card = links[index]
            source = max((_is_near(target, value, prefix), value) for value, prefix in own[index])[1]
            ends = card + source + bytes(6) + target
            yield target, (name, b"\xff" * 6 + card + struct.pack("!5H", 0x0806, 1, 0x0800, 0x0604, 1) + ends)


def _is_near(target, own, prefix):
    return int.from_bytes(target, "big") >> 32 - prefix == int.from_bytes(own, "big") >> 32 - prefix

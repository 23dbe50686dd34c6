"""Asks neighbours for their hardware addresses, as the kernel would (ARP, RFC 826)."""

import struct
import time

from doctor.remote.runtime.netlink import listed_addresses, name_text, netlink_entries

ENOUGH = 2  # answers: one may be to the kernel, which asks a host that it knows by its hardware address alone
TURNS = 5
LATE = 100  # frames that are read after a turn's time


def ask_neighbours(targets, seconds):
    """The hardware address that answers for each of the addresses, in bytes; none where no answer comes.

    All hosts of a network are asked anew: what the kernel knows may be hours old, or learned from what the other host
    has sent by itself. IPv6, other networks than Ethernet, and without CAP_NET_RAW: what the kernel has confirmed in
    the last 45 s, or has asked for in vain. Without what is behind a router, or was entered by hand.
    """
    import _socket as socket

    questions, answers = [], {}
    for target, confirmed, question in _entries():
        address = socket.inet_ntop(socket.AF_INET if len(target) == 4 else socket.AF_INET6, target)
        if address in targets:
            if confirmed is not None:
                answers[address] = confirmed or answers.get(address, b"")
            questions += [(target, question)] if question else []
    try:
        asker = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0608)  # ETH_P_ARP, in the network's order
    except OSError:
        return answers
    try:
        cards = _answers(asker, questions, seconds / TURNS)
    finally:
        asker.close()
    answers.update((socket.inet_ntoa(key), got[0] if len(got) >= ENOUGH else b"") for key, got in cards.items())
    return answers


def _answers(asker, questions, seconds):
    """The hardware addresses that come back for each target, by any of the interfaces of its network.

    `seconds`: of a turn that lacks an answer.
    """
    cards = {target: [] for target, _ in questions}
    for _ in range(TURNS):
        waiting = set(target for target in cards if len(cards[target]) < ENOUGH)
        for target, (name, frame) in questions:
            try:
                if target in waiting:
                    asker.sendto(frame, (name, 0x0806))
            except OSError:
                pass  # a rule of this host drops it, or the interface is down
        end, late = time.monotonic() + seconds, 0
        while waiting and late < LATE:
            rest = end - time.monotonic()
            late += rest <= 0  # this process waited for a CPU: what came meanwhile is in the queue
            asker.settimeout(max(0.001, rest))
            try:
                frame = asker.recv(64)
            except OSError:
                break  # no answer in time
            if frame[20:22] == b"\0\2" and frame[28:32] in waiting:
                cards[frame[28:32]].append(frame[22:28])
                waiting.remove(frame[28:32])
    return cards


def _entries():
    """Of each neighbour in the kernel's table: its address, what the kernel has of it now, and interface and question.

    It has the hardware address, none, or (None) an old one; without a question where none can be asked.
    """
    links, addresses = {}, {}
    for entry, values in netlink_entries(18, 0, 16):
        kind, index, flags = struct.unpack("=2xHiI4x", entry)
        if kind == 1 and not flags & 0x80:  # ARPHRD_ETHER, IFF_NOARP
            links[index] = name_text(values.get(3, b"")), values.get(1, b"")
    for index, family, value, prefix, _ in listed_addresses():
        if family == 2:
            addresses.setdefault(index, []).append((value, prefix))
    for entry, values in netlink_entries(30, 0, 12):
        index, state, flags = struct.unpack("=4xiHBx", entry)
        target = values.get(1, b"")
        near = [
            value for value, prefix in addresses.get(index, ()) if len(target) == 4 and _is_near(target, value, prefix)
        ]
        if not (near or len(target) == 16) or state & 0xC0 or flags & 0x18:
            continue  # learned by an interface of another network; NUD_NOARP, PERMANENT, NTF_PROXY, EXT_LEARNED
        confirmed = values.get(2) if state & 2 else b"" if state & 0x21 else None  # NUD_REACHABLE; FAILED, INCOMPLETE
        question = None
        if near and index in links:
            name, card = links[index]
            ends = card + near[0] + bytes(6) + target
            question = name, b"\xff" * 6 + card + struct.pack("!5H", 0x0806, 1, 0x0800, 0x0604, 1) + ends
        yield target, confirmed, question


def _is_near(target, address, prefix):
    return int.from_bytes(target, "big") >> 32 - prefix == int.from_bytes(address, "big") >> 32 - prefix

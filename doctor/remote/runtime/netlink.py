"""What the kernel lists over netlink: ``ip`` may be missing in a container, and is slower."""

import os
import struct


def netlink_messages(protocol, request, body, seconds=None):
    """(kind, bytes behind the header) of each message with which the kernel answers a dump. Raises: OSError.

    ``protocol``: NETLINK_ROUTE, 0; NETLINK_SOCK_DIAG, 4; NETLINK_NETFILTER, 12. ``seconds``: for each datagram.
    """
    import _socket as socket

    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    try:
        link.settimeout(seconds)
        link.bind((0, 0))
        link.send(struct.pack("=IHHII", 16 + len(body), request, 0x301, 1, 0) + body)
        while True:
            data = link.recv(1 << 20)
            while len(data) >= 16:
                length, kind = struct.unpack("=IH", data[:6])
                if kind in (2, 3):  # NLMSG_ERROR, NLMSG_DONE: both end with an error's number, less than 0
                    code = -struct.unpack("=i", data[16:20])[0] if length >= 20 else 0
                    if code > 0:
                        raise OSError(code, os.strerror(code))
                    return
                yield kind, data[16:length]
                data = data[(max(length, 16) + 3) & ~3 :]
    finally:
        link.close()


def netlink_entries(request, family, header, limit=1 << 14):
    """Up to ``limit`` entries: the first ``header`` bytes of each, and its attributes by number. Raises: OSError.

    The request has a header of that length, too: what follows it the kernel reads as attributes (rtnetlink(7)).
    ``request``: RTM_GETLINK, 18; RTM_GETADDR, 22; RTM_GETROUTE, 26; RTM_GETNEIGH, 30; RTM_GETRULE, 34.
    """
    entries = []
    for kind, data in netlink_messages(0, request, bytes([family]) + bytes(header - 1)):
        if len(entries) > limit:
            break
        if kind == request - 2:
            entries.append((data[:header], netlink_attributes(data[header:])))
    return entries


def listed_addresses(limit=1 << 14):
    """The number of the interface, family, address in bytes, bits of its prefix and label of each address of the host.

    The address: the local end of a point-to-point link. The label: bytes, empty where it has none. Raises: OSError.
    """
    for entry, values in netlink_entries(22, 0, 8, limit):
        family, prefix, _, _, index = struct.unpack("=BBBBI", entry)
        value = values.get(2) or values.get(1)
        if family in (2, 10) and value:  # AF_INET, AF_INET6
            yield index, family, value, prefix, values.get(3, b"")


def neighbour_table():
    """Entries that the kernel's table of IPv4 neighbours may have, and those that it had no room for since it started.

    Zeros where it does not tell: before Linux 4.3. Of rtnetlink(7): NDTA_THRESH3, and table_fulls of NDTA_STATS.
    """
    try:
        for kind, data in netlink_messages(0, 66, bytes([2, 0, 0, 0])):
            values = netlink_attributes(data[4:])
            if kind == 64 and len(values.get(7, b"")) >= 88:
                return struct.unpack("=I", values[4])[0], struct.unpack_from("=Q", values[7], 80)[0]
    except OSError:
        pass
    return 0, 0


def diagnosed_sockets(body, header, seconds, limit=1 << 16):
    """The same of sockets, by SOCK_DIAG_BY_FAMILY; those read so far where the kernel refuses or is slow."""
    entries = []
    try:
        for kind, data in netlink_messages(4, 20, body, seconds):
            if kind != 20 or len(entries) >= limit:
                break
            entries.append((data[:header], netlink_attributes(data[header:])))
    except OSError:
        pass
    return entries


def diagnosed_tcp(family, extension, states, seconds):
    """(inode, attributes, own and peer's address) of the TCP sockets in these states, with one more attribute
    (INET_DIAG_*) than usual.

    Both are bit masks: of attributes less one, and of the kernel's numbers of states.
    """
    body = struct.pack("=BBBBI48x", family, 6, extension, 0, states)
    entries = diagnosed_sockets(body, 72, seconds)
    size = 4 if family == 2 else 16
    return [
        (str(struct.unpack("=I", entry[68:])[0]), values, (entry[8 : 8 + size], entry[24 : 24 + size]))
        for entry, values in entries
        if len(entry) == 72
    ]


def netlink_attributes(rest):
    """The attributes in the bytes of an entry, or within one of its attributes."""
    values = {}
    while len(rest) >= 4:
        size, attribute = struct.unpack("=HH", rest[:4])
        if size < 4:
            break
        values[attribute & 0x3FFF] = rest[4:size]
        rest = rest[(size + 3) & ~3 :]
    return values


def name_text(value):
    """The text of an attribute that ends with a zero byte."""
    return value.split(b"\0")[0].decode("utf-8", "replace")


def driver_values(asking, name, words):
    """What an interface's driver answers to the 32-bit ``words`` of an ``ethtool`` request; [] where it does not."""
    import array  # in here: it loads `collections`
    import fcntl

    values = array.array("I", words)
    request = struct.pack("16sP", name.encode("utf-8", "surrogateescape")[:15], values.buffer_info()[0])
    try:
        fcntl.ioctl(asking.fileno(), 0x8946, request + bytes(16))  # SIOCETHTOOL
    except OSError:
        return []
    return list(values)


def sending_delays(names):
    """Interface, kind, seconds, share lost and bytes a second of each netem and tbf (linux/pkt_sched.h)."""
    delays = []
    try:
        disciplines = netlink_entries(38, 0, 20, 4096)
    except OSError:  # a kernel without traffic control
        return delays
    for entry, values in disciplines:
        kind, options = name_text(values.get(1, b"")), values.get(2, b"")
        name = names.get(struct.unpack("=i", entry[4:8])[0], "")
        if kind == "netem" and len(options) >= 24:
            more = netlink_attributes(options[24:])
            rate = struct.unpack("=Q", more[8])[0] if 8 in more else struct.unpack("=I", more.get(6, bytes(4))[:4])[0]
            ticks, _, loss = struct.unpack("=III", options[:12])
            seconds = struct.unpack("=q", more[10])[0] / 1e9 if 10 in more else ticks * 64e-9
            delays.append([name, kind, seconds, loss / 0xFFFFFFFF, rate])
        elif kind == "tbf":
            more = netlink_attributes(options)
            rate = struct.unpack("=I", more.get(1, bytes(12))[8:12])[0]
            delays.append([name, kind, 0.0, 0.0, struct.unpack("=Q", more[4])[0] if 4 in more else rate])
    return delays

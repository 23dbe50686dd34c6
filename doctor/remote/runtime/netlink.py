"""What the kernel lists over netlink: ``ip`` may be missing in a container, and is slower."""


def netlink_entries(request, family, header, limit=1 << 14):
    """Up to ``limit`` entries: the first ``header`` bytes of each, and its attributes by number. Raises: OSError.

    ``request``: RTM_GETLINK, 18; RTM_GETADDR, 22; RTM_GETROUTE, 26; RTM_GETNEIGH, 30; RTM_GETRULE, 34.
    """
    import _socket as socket
    import struct

    entries = []
    route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    try:
        route.bind((0, 0))
        route.send(struct.pack("=IHHIIB15x", 32, request, 0x301, 1, 0, family))
        while True:
            data = route.recv(1 << 20)
            while len(data) >= 16:
                length, kind = struct.unpack("=IH", data[:6])
                if kind == 3 or len(entries) > limit:
                    return entries
                if kind == 2:
                    raise OSError(-struct.unpack("=i", data[16:20])[0], "netlink refuses")
                if kind == request - 2:
                    start = 16 + header
                    entries.append((data[16:start], netlink_attributes(data[start:length])))
                data = data[(length + 3) & ~3 :]
    finally:
        route.close()


def netlink_attributes(rest):
    """The attributes in the bytes of an entry, or within one of its attributes."""
    import struct

    values = {}
    while len(rest) >= 4:
        size, attribute = struct.unpack("=HH", rest[:4])
        if size < 4:
            break
        values[attribute & 0x3FFF] = rest[4:size]
        rest = rest[(size + 3) & ~3 :]
    return values

"""The host's addresses and the ranks' sockets."""

import errno
import os
import socket
import struct

from doctor.remote.runtime.connecting import NO_ROUTE, REFUSED_HERE, connect_all
from doctor.remote.runtime.netlink import diagnosed_tcp, listed_addresses, sending_delays
from doctor.remote.runtime.reading import names_in, read_text, table_address, table_rows
from doctor.smoke.programs.agent.procfs import open_files

ESTABLISHED, CONNECTING, LISTENS = "01", "02", "0A"  # Linux, include/net/tcp_states.h


def proc_address(text):
    """The IP address and port of a word in /proc/net/tcp."""
    packed, port = table_address(text)
    return address_text(packed), port


def address_text(data):
    """An IP address from its bytes; one of IPv4 that is mapped into IPv6 is one of IPv4."""
    if len(data) == 16 and data[:12] == b"\0" * 10 + b"\xff\xff":
        data = data[12:]
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)


def socket_inodes(pid):
    """The inodes of the sockets that a process has open, as texts."""
    return set(target[8:-1] for target in open_files(pid, 1 << 20) if target.startswith("socket:["))


def socket_owners(pids):
    """By inode of a socket, as text: the pid of these that has it."""
    return dict((inode, pid) for pid in pids for inode in socket_inodes(pid))


def socket_rows(pid, kind):
    """The fields of the sockets of a kind (``tcp``) that the network of a process shows."""
    tables = [table_rows("/proc/%d/net/%s" % (pid, name)) or () for name in (kind, kind + "6")]
    return [fields for table in tables for fields in table]


def datagram_inodes(pid):
    """The inodes of the UDP sockets that the network of a process shows."""
    return set(fields[9] for fields in socket_rows(pid, "udp"))


def tcp_table(pid, states):
    """[inode, state, local, peer, fields] of the TCP sockets in these states that the network of a process shows."""
    rows = [fields for fields in socket_rows(pid, "tcp") if fields[3] in states]
    return [(row[9], row[3], proc_address(row[1]), proc_address(row[2]), row) for row in rows]


def tcp_sockets(pids):
    """[pid, established, local, peer, retransmits, unacknowledged bytes, unread bytes] of their TCP sockets."""
    owners = socket_owners(pids)
    return [
        [owners[inode], state == ESTABLISHED, local, peer, int(row[6], 16)]
        + [int(part, 16) for part in row[4].split(":")]
        for inode, state, local, peer, row in (tcp_table(pids[0], (ESTABLISHED, LISTENS)) if pids else ())
        if inode in owners
    ]


def halted_connections(pids):
    """[peer's address, whether the peer has room] of connections of these processes that keep all their bytes back.

    The kernel waits to try again (timer 4 of /proc/net/tcp) to send the first of them, and none is on its way: the peer
    announces no room for it, at two tries or more, or this host itself refuses to send it. Linux, struct tcp_info:
    backoff, snd_mss, unacked, notsent_bytes and snd_wnd (from 5.4 on).
    """
    rows = tcp_table(pids[0], (ESTABLISHED,)) if pids else ()
    owners = socket_owners(pids)
    probing = set(inode for inode, _, _, _, row in rows if inode in owners and row[5].startswith("04:"))
    halted = set()
    for family in (socket.AF_INET, socket.AF_INET6) if probing else ():
        for inode, values, ends in diagnosed_tcp(family, 2, 1 << 1, 0.2):
            info = values.get(2, b"")
            if inode in probing and len(info) >= 232:
                size, unacked, unsent, window = [struct.unpack_from("=I", info, at)[0] for at in (16, 24, 144, 228)]
                if unsent and not unacked and (window >= size or info[4] >= 2):
                    halted.add((address_text(ends[1]), window >= size))
    return sorted(halted)


def tcp_bytes(pids):
    """By pid: bytes that its TCP connections have carried, sent (acknowledged) and received. Empty if not known."""
    owners = socket_owners(pids)
    return bytes_by_owner(owners, socket_bytes() if owners else {})


def bytes_by_owner(owners, by_socket):
    """By pid: the bytes of `socket_bytes` that the sockets of `socket_owners` have carried."""
    carried = {}
    for inode, pid in owners.items():
        if inode in by_socket:
            carried[pid] = carried.get(pid, 0) + by_socket[inode]
    return carried


def socket_bytes():
    """By inode: bytes that each TCP connection here has carried, sent (acknowledged) and received."""
    return dict(row for family in (socket.AF_INET, socket.AF_INET6) for row in diagnosed_bytes(family))


def carried_bytes(pids, devices=None):
    """As `tcp_bytes`; with ``devices``, what RDMA ports and links between devices carried counts for each process."""
    by_devices = rdma_bytes() + devices.carried() if devices else 0
    return dict((pid, count + by_devices) for pid, count in tcp_bytes(pids).items())


RDMA_FOLDER = "/sys/class/infiniband"
RDMA_NOISE = 1 << 16  # bytes: what management sends now and then is no transfer of a rank


def rdma_bytes():
    """Bytes that the RDMA ports of this host have carried, in whole pieces of `RDMA_NOISE`; 0 where it has none.

    Of all processes: another job's traffic shows as well. Linux, Documentation/ABI/stable/sysfs-class-infiniband,
    port_xmit_data and port_rcv_data: octets divided by 4.
    """
    total_words = 0
    for adapter in sorted(names_in(RDMA_FOLDER))[:64]:
        ports = "%s/%s/ports" % (RDMA_FOLDER, adapter)
        for port in sorted(names_in(ports))[:16]:
            for name in ("port_xmit_data", "port_rcv_data"):
                text = read_text("%s/%s/counters/%s" % (ports, port, name), 32).strip()
                total_words += int(text) if text.isdigit() else 0
    return 4 * total_words // RDMA_NOISE * RDMA_NOISE


def diagnosed_bytes(family):
    """(inode, bytes carried) of every established TCP socket, by the kernel's sock_diag."""
    rows = []
    for inode, values, _ in diagnosed_tcp(family, 2, 1 << 1, 0.2):
        info = values.get(2, b"")  # INET_DIAG_INFO: bytes_acked and bytes_received of tcp_info
        if len(info) >= 136:
            acked, received = struct.unpack_from("=QQ", info, 120)
            rows.append((inode, acked + received))
    return rows


def interface_addresses():
    """The addresses by interface, IPv4 first."""
    names = dict(socket.if_nameindex())
    addresses = {name: [] for name in names.values()}
    for index, family, value, _, _ in listed_addresses():
        if index in names:
            addresses[names[index]].append(socket.inet_ntop(family, value))
    return addresses


def network_state():
    """The host's addresses, and what slows down the sending of interfaces that have one."""
    by_interface = interface_addresses()
    names = dict((index, name) for index, name in socket.if_nameindex() if by_interface.get(name) and name != "lo")
    return {
        "addresses": [address for some in by_interface.values() for address in some][:1024],
        "delays": [row for row in sending_delays(names) if row[0]][:64],
    }


def interface_speeds():
    """Mb/s by interface, of those that are up; 0 where it is not known. Those without hardware claim any speed: 0, too.

    Loopback is left out. `speed` of a link without hardware, such as veth, is a constant of its driver.
    """
    speeds = {}
    for _, name in socket.if_nameindex():
        folder = "/sys/class/net/%s" % name
        if name != "lo" and read_text(folder + "/operstate", 32).strip() != "down":
            speed = read_text(folder + "/speed", 32).strip()
            hardware = os.path.exists(folder + "/device")
            speeds[name] = int(speed) if hardware and speed.isdigit() and len(speed) < 9 else 0
    return speeds


def interface_to(target, port):
    """The interface whose address this host would speak to the target from; empty when that cannot be found."""
    try:
        family, _, _, _, address = socket.getaddrinfo(target, port or 1, 0, socket.SOCK_DGRAM)[0]
        datagrams = socket.socket(family, socket.SOCK_DGRAM)
        try:
            datagrams.connect(address)
            source = datagrams.getsockname()[0].split("%")[0]
        finally:
            datagrams.close()
    except OSError:
        return ""
    return interface_with([source])


def interface_with(addresses):
    """The interface that has one of these addresses; empty when none has."""
    interfaces = sorted(interface_addresses().items())
    return next((name for name, local in interfaces if set(local) & set(addresses)), "")


def listen_on(port):
    """A listening socket on all addresses, of both families where the host has them, and where the port is free.

    Where only the port of IPv6 is taken it listens for IPv4 alone, as PyTorch's store does.
    """
    try:
        server = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        return start_listening(server, "::", port)
    except OSError:
        return start_listening(socket.socket(socket.AF_INET, socket.SOCK_STREAM), "0.0.0.0", port)


def start_listening(server, address, port):
    """The socket, bound and listening; closed where that fails. Raises: OSError."""
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        server.listen(1024)
    except OSError:
        server.close()
        raise
    return server


def connect_result(outcome, at_once):
    """The outcome of an attempt of `connect_all` in a word; ok is success.

    A refusal of this host's own kernel is the name of its error number. What could not be tried is untried.
    """
    if outcome in (None, errno.ETIMEDOUT):
        return "dropped"
    if outcome in (0, errno.ECONNREFUSED):
        return "refused" if outcome else "ok"
    if at_once:
        return errno.errorcode[outcome] if outcome in REFUSED_HERE else "untried"
    return "no-route" if outcome in NO_ROUTE else os.strerror(outcome)


def probe_connections(targets, seconds):
    """Connects to all targets at once: [address, port, result, seconds] for each.

    Refused is an answer too: packets go there and come back.
    """
    outcomes, _ = connect_all(targets, seconds)
    return [
        list(target[:2]) + [connect_result(outcome, at_once), round(took, 4)]
        for target, outcome, took, at_once in outcomes
    ]

"""Processes that work together although nothing names their ranks: by their connections and shared memory."""

import os
import re
import socket
import stat
import struct
import time
import zlib

from doctor.remote.runtime.netlink import diagnosed_sockets
from doctor.remote.runtime.reading import link_at, names_in, open_at_once, read_text
from doctor.smoke.programs.agent.network import ESTABLISHED, LISTENS, datagram_inodes, socket_inodes, tcp_table
from doctor.smoke.programs.agent.procfs import ancestors

LIBRARY = re.compile(
    r"/(?:libtorch_cpu|libtorch_npu|libnccl|librccl|libhccl|libhcom|libmpi|libmpich|libgloo|libmindspore\w*"
    r"|_?xla_extension|libjax_common|libpaddle|libhorovod|mpi_lib|_raylet|sglang_router_rs)[^/\n]{0,60}\.so"
)
SHARED = re.compile(r"^\S+ .w.s \S+ (\S+ \d+) +/dev/shm/(?!torch_|sem\.|pymp-)", re.M)
ROUTER = "/sglang_router_rs."  # SGLang's: it hands on requests to servers that do not wait for each other
# Start and end, device, inode and path of what others may write to: each process that has it mapped sees it.
WRITABLE = re.compile(r"^([0-9a-f]+-[0-9a-f]+) .w.s \S+ (\S+) (\d+) *(.*)$", re.M)
IN_MEMORY = re.compile(r"/dev/(?:shm/|zero)|/memfd:|/SYSV")
NO_DISK = re.compile("00:|/dev/")  # a device, or a file system whose server may not answer
MOST_OF_FILE, MOST_SHARED = 1 << 26, 1 << 29
MOST_ENDS = 256
PIECE = 1 << 20
ANSWER_SECONDS = 3.0  # of the kernel, on a loaded host
# Starts the names of threads that serve a store of torch: torch/csrc/distributed/c10d/TCPStore{,LibUv}Backend.cpp.
STORE_THREAD = "pt_tcpstore"


def uses_library(maps):
    """Whether a process has a library of distributed programs mapped."""
    return bool(LIBRARY.search(maps))


def shared_sum(pid, maps, by_socket, sums, until):
    """A sum over the memory that a process shares with others, in which MPI's messages within a host pass.

    -1 where some of it cannot be read, or another way for messages is open: that of a device, of datagrams, or of a
    connection that is not in ``by_socket``. ``sums``: those of files at this look, with their sizes. ``until``: by the
    monotonic clock, after which no more is read.
    """
    uncounted = socket_inodes(pid) & (set(tcp_ends(pid)) - set(by_socket) | datagram_inodes(pid))
    numbers = [-1] if uncounted else []
    for place, *key, path in WRITABLE.findall(maps):
        if tuple(key) not in sums:
            # Root follows no path that a user may have changed; no other may follow the link.
            name = "map_files/" + place if os.geteuid() == 0 else "root" + path
            readable = IN_MEMORY.match(path) or not (NO_DISK.match(key[0]) or NO_DISK.match(path))
            most = min(MOST_OF_FILE, MOST_SHARED - sum(size for _, size in sums.values()))
            sums[tuple(key)] = file_sum("/proc/%d/%s" % (pid, name), int(key[1]), most, until) if readable else (-1, 0)
        numbers.append(sums[tuple(key)][0])
    return -1 if -1 in numbers else sum(numbers)


def file_sum(path, inode, most, until):
    """(sum, bytes) of a file's content; the sum is -1 where it cannot be read at once, is larger or another."""
    number, read = 0, 0
    try:
        with open(path, "rb", 0, opener=open_at_once) as file:
            status = os.fstat(file.fileno())
            is_same = stat.S_ISREG(status.st_mode) and status.st_ino == inode and status.st_size <= most
            is_on_disk = not IN_MEMORY.match(os.readlink("/proc/self/fd/%d" % file.fileno()))
            while is_same and read < status.st_size:
                piece = cached_piece(file.fileno(), read) if is_on_disk else file.read(PIECE)
                if not piece or time.monotonic() > until:
                    return -1, read
                number, read = zlib.crc32(piece, number), read + len(piece)
            return (number, read) if is_same else (-1, 0)
    except OSError:
        return -1, read


def cached_piece(fd, place):
    """Bytes of a file on a disk that are in memory; what a disk that does not answer has is not waited for.

    Empty where Python is older than 3.7. Raises: OSError, where they are not in memory.
    """
    piece = bytearray(PIECE)
    read = getattr(os, "preadv", None)
    return bytes(piece[: read(fd, [piece], place, os.RWF_NOWAIT)]) if read else b""


def tcp_ends(pid, state=ESTABLISHED):
    """By inode: (own end, other end) of the TCP connections that a process's network shows. ``state``: established."""
    return dict((inode, (local, peer)) for inode, _, local, peer, _ in tcp_table(pid, (state,)))


def link_text(local, peer):
    """A connection: own end, ``>``, the other end."""
    return "%s:%d>%s:%d" % (local + peer)


def unix_pairs():
    """Pairs of inodes of UNIX sockets that are connected, as `sock_diag` knows them; empty where it does not say. A
    connection that its server has not accepted yet has the listener for its other end.
    """
    every_state, show_both = 0xFFFFFFFF, 4 | 8
    body = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, every_state, 0, show_both, 0, 0)
    pairs = []
    for entry, values in diagnosed_sockets(body, 16, ANSWER_SECONDS):
        peer, pending = values.get(2, b""), values.get(3, b"")  # UNIX_DIAG_PEER, UNIX_DIAG_ICONS
        if len(entry) == 16:
            inode = str(struct.unpack_from("=I", entry, 4)[0])
            pairs += [(inode, str(other)) for (other,) in struct.iter_unpack("=I", peer)]
            pairs += [(str(other), inode) for (other,) in struct.iter_unpack("=I", pending)]
    return pairs


def find_groups(maps):
    """Processes that are connected with each other, by the smallest pid of each group; links and stores by pid.

    ``maps``: by pid, of processes that use a library of distributed programs, or are ranks by their environment.
    ``links``: by pid, the connections to other hosts, as ``own end>other end``. One to this host's own address that
    ends at none of ``maps`` (a server of notebooks, a database) is no link. ``stores``: as `served_stores` returns.
    """
    every = dict((pid, socket_inodes(pid)) for pid in maps)
    above = dict((pid, set().union(*(every.get(parent, ()) for parent in ancestors(pid)))) for pid in maps)
    own = dict((pid, every[pid] - above[pid]) for pid in maps)  # a fork hands them on
    owner = dict((inode, pid) for pid in maps for inode in own[pid])
    users = dict((pid, user_of(pid)) for pid in maps)
    edges, links = [], dict((pid, []) for pid in maps)
    by_end, servers, segments = {}, {}, {}
    for network, pid in dict((link_at("/proc/%d/ns/net" % pid), pid) for pid in maps).items():
        for inode, (local, peer) in tcp_ends(pid).items():
            if inode in owner:
                by_end[(network, local, peer)] = owner[inode]
        for inode, (local, _) in tcp_ends(pid, LISTENS).items():
            if local[0] in ("0.0.0.0", "::"):
                servers[(network, local[1])] = owner.get(inode)
    for (network, local, peer), pid in by_end.items():
        other = by_end.get((network, peer, local))
        if other is not None:
            edges.append((pid, other))
        elif local[0] != peer[0] and len(links[pid]) < MOST_ENDS:  # else its end is here, and of no such program
            links[pid].append(link_text(local, peer))
    edges += [(owner[entry], owner[other]) for entry, other in unix_pairs() if entry in owner and other in owner]
    for pid, text in maps.items():
        for segment in set(SHARED.findall(text)):
            edges.append((segments.setdefault(segment, pid), pid))
    edges = [(entry, other) for entry, other in edges if entry != other and users[entry] == users[other]]
    routers = set(pid for pid, text in maps.items() if ROUTER in text)
    apart = [edge for edge in edges if routers.isdisjoint(edge)]
    helpers = helpers_of(apart)
    apart = [edge for edge in apart if helpers.isdisjoint(edge)]
    lone = set(first for first, members in joined_groups(sorted(maps), apart).items() if len(members) == 1)
    # Servers of several processes stay jobs of their own.
    apart += [edge for edge in edges if (lone - helpers).issuperset(edge)]
    return joined_groups(sorted(maps), apart), links, served_stores(by_end, servers)


def helpers_of(edges):
    """Processes that are connected with their own ancestor alone, while that is connected with others than its own.

    So is a worker of a rank's loader; of the ranks that one process starts, each has another rank beside that.
    """
    near = {}
    for entry, other in edges:
        near.setdefault(entry, set()).add(other)
        near.setdefault(other, set()).add(entry)
    above = dict((pid, set(ancestors(pid))) for pid in near)
    beside = set(pid for pid in near if any(pid not in above[other] for other in near[pid] - above[pid]))
    return set(pid for pid in near if len(near[pid]) == 1 and near[pid] <= above[pid] & beside)


def served_stores(by_end, servers):
    """By pid: [port, pids connected to it, pids connected with the process otherwise] of torch's stores that it serves.

    Such a server listens at every address, has a thread of its own, and its process is connected with it as well.
    ``by_end``: by network and both ends of a connection, its process. ``servers``: by network and port.
    """
    near = {}
    for (network, local, peer), pid in by_end.items():
        port = local[1] if servers.get((network, local[1])) == pid else 0
        near.setdefault(pid, {}).setdefault(port, set()).add(by_end.get((network, peer, local)))
    return dict(
        (pid, [[port, sorted(others - {None}), sorted(ports.get(0, set()) - {None, pid})]
               for port, others in sorted(ports.items()) if port and pid in others])
        for pid, ports in near.items() if any(ports) and serves_store(pid)
    )  # fmt: skip


def serves_store(pid):
    """Whether a process has a thread that serves a store of torch."""
    folder = "/proc/%d/task" % pid
    return any(read_text("%s/%s/comm" % (folder, name), 32).startswith(STORE_THREAD) for name in names_in(folder))


def joined_groups(pids, edges):
    """The connected sets of at least one process, by their smallest pid."""
    group = dict((pid, pid) for pid in pids)

    def root(pid):
        while group[pid] != pid:
            group[pid] = pid = group[group[pid]]
        return pid

    for entry, other in edges:
        first, second = sorted((root(entry), root(other)))
        group[second] = first
    sets = {}
    for pid in pids:
        sets.setdefault(root(pid), []).append(pid)
    return sets


def user_of(pid):
    """The number of the user whose process it is; -1 where it is gone."""
    try:
        return os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return -1

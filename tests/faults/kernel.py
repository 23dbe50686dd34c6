"""Faults of kernel settings, ports and limits."""

from __future__ import annotations

from tests.faults import Row
from tests.faults.gpus import logged


def setting(key: str, value: str) -> tuple[str, str]:
    """Sets a sysctl of the host, and sets it back."""
    path = "/proc/sys/" + key.replace(".", "/")
    return f"cat {path} >/run/kept.{key}\necho '{value}' >{path}", f"cat /run/kept.{key} >{path}"


def limit(name: str, soft: int) -> tuple[str, str]:
    """Lowers the soft limit of sshd, and so of every new session, and raises it to where it was."""
    keep = f"prlimit --pid 1 --{name} --noheadings --raw -o SOFT >/run/kept.{name}\n"
    return keep + f"prlimit --pid 1 --{name}={soft}:", f'prlimit --pid 1 --{name}="$(cat /run/kept.{name}):"'


def held(statements: str) -> tuple[str, str]:
    """Runs Python in the background, which holds what it has made until it is ended; none waits for one that fails."""
    fault = f"""\
mkfifo /run/held
python3 - >/dev/null 2>&1 <<'END' &
import os, signal, socket
ready = open("/run/held", "w")
{statements}
print(os.getpid(), file=ready)
ready.close()
signal.pause()
END
cat /run/held >/run/held.pid
test -s /run/held.pid
"""
    return fault, 'kill "$(cat /run/held.pid)"; rm /run/held /run/held.pid'


def bind_over(path: str, text: str) -> tuple[str, str]:
    """Shows the host another text in a file of /proc."""
    return f"echo '{text}' >/run/shown; mount --bind /run/shown {path}", f"umount {path}"


def shown_limit(entries: str) -> tuple[str, str]:
    """Shows the host a limit of its neighbour table, which no network namespace but the first has."""
    folder = "/proc/sys/net/ipv4/neigh"
    fault = (
        "mkdir -p /run/neigh/default && echo 512 >/run/neigh/default/gc_thresh2\n"
        f"echo {entries} >/run/neigh/default/gc_thresh3\nmount --bind /run/neigh {folder}"
    )
    return fault, f"umount {folder}"


FULL, NOT_FULL = bind_over("/proc/sys/net/netfilter/nf_conntrack_count", "999999999")
SOMAXCONN, PORTS = "net.core.somaxconn", "net.ipv4.ip_local_reserved_ports"
LISTEN = 'one = socket.create_server(("", {port}))'
CONNECT = """\
one = socket.create_server(("127.0.0.1", 2222))
two = socket.create_connection(("127.0.0.1", 2222), source_address=("127.0.0.1", {port}))"""
SET, SYSTEMD = setting(SOMAXCONN, "8192"), bind_over("/proc/1/comm", "systemd")
HIDE_LINK = """\
mkdir /run/kept.sysctl
for path in /etc/sysctl.conf /etc/sysctl.d/99-sysctl.conf; do
    if [ -e $path ] || [ -L $path ]; then mv $path /run/kept.sysctl/; fi
done
"""
SHOW_LINK = """\
rm /etc/sysctl.conf
if [ -e /run/kept.sysctl/sysctl.conf ]; then mv /run/kept.sysctl/sysctl.conf /etc/; fi
if [ -L /run/kept.sysctl/99-sysctl.conf ]; then mv /run/kept.sysctl/99-sysctl.conf /etc/sysctl.d/; fi
"""


def grouped(controller: str, file: str, value: str, unified: str) -> tuple[str, str]:
    """Puts the host's SSH server, and so every session, into a control group of its own with a limit.

    ``file`` is set on a machine whose control groups are of version 1, ``unified``, as ``file=value``, on one of 2.
    The group outlives a host that is ended: those of earlier tests are removed here.
    """
    unified_file, _, unified_value = unified.partition("=")
    fault = f"""\
mount -t tmpfs none /sys/fs/cgroup && cd /sys/fs/cgroup
if grep -q ':memory:' /proc/self/cgroup; then
    for name in memory pids cpu cpuset; do mkdir $name && mount -t cgroup -o $name none $name; done
    top=/sys/fs/cgroup/{controller} file={file} value='{value}'
else
    mount -t cgroup2 none /sys/fs/cgroup && echo +{controller} >cgroup.subtree_control
    top=/sys/fs/cgroup file={unified_file} value='{unified_value}'
fi
find $top -maxdepth 1 -name 'doctor-*' -mmin +10 -exec rmdir {{}} + 2>/dev/null || true
group=$(mktemp -d $top/doctor-XXXXXX)
echo "$value" >$group/$file
echo 1 >$group/cgroup.procs
echo $group >/run/kept.group"""
    undo = """\
group=$(cat /run/kept.group)
for pid in $(cat $group/cgroup.procs); do echo $pid >$group/../cgroup.procs || true; done
rmdir $group
umount -R /sys/fs/cgroup"""
    return fault, undo


ROWS = [
    Row("listen-queue-short", *setting(SOMAXCONN, "128"), values={"observed": 128, "expected": 256, "ranks": 32}),
    Row("listen-queue-short", *setting(SOMAXCONN, "128"), fleet="cpu"),
    Row(
        "listen-queue-short",
        *setting(SOMAXCONN, "4000"),
        environ={"WORLD_SIZE": "1024"},
        values={"expected": 4096, "ranks": 1024},
    ),
    Row(
        "local-ports-few",
        *setting("net.ipv4.ip_local_port_range", "40000 40000"),
        fleet="cpu",
        values={"observed": 1, "expected": 1024, "range": "40000"},
        apart=("*",),
    ),
    Row(
        "local-ports-few",
        *setting(PORTS, "32768-60990"),
        fleet="cpu",
        values={"observed": 9, "reserved": "32768-60990"},
        also=("sysctl-lost-at-reboot",),
    ),
    Row("syn-queue-short", *setting("net.ipv4.tcp_max_syn_backlog", "128"), values={"observed": 128, "expected": 256}),
    Row(
        "hccl-ports-unreserved",
        *setting(PORTS, ""),
        values={"ports": "60000-60015", "merged": "60000-60031"},
        also=("sysctl-lost-at-reboot",),
    ),
    Row(
        "hccl-ports-unreserved",
        *setting(PORTS, "8080"),
        fleet="a3",
        values={"merged": "8080,60000-60031"},
        also=("sysctl-lost-at-reboot",),
    ),
    Row(
        "hccl-ports-half-reserved",
        *setting(PORTS, "60000-60015"),
        clause="Where HCCL's first 16 host ports are reserved, so are the other 16",
        fleet="a1",
        values={"ports": "60016-60031"},
        also=("sysctl-lost-at-reboot",),
    ),
    Row(
        "hccl-ports-beyond-range",
        "",
        environ={"HCCL_IF_BASE_PORT": "65520"},
        blamed=(),
        values={"base": 65520, "missing": 16},
        healthy_first=False,
    ),
    Row(
        "master-port-among-hccl-ports",
        "",
        environ={"MASTER_ADDR": "sb0001", "MASTER_PORT": "60005"},
        blamed=(),
        values={"port": 60005},
        healthy_first=False,
    ),
    Row("hccl-port-taken", *held(LISTEN.format(port=60005)), values={"port": 60005, "user": "root"}),
    Row("hccl-port-taken", *held(CONNECT.format(port=60006)), values={"port": 60006}),
    Row(
        "default-port-taken",
        *held(LISTEN.format(port=29400)),
        fleet="cpu",
        values={"port": 29400},
        apart=("clocks-differ",),  # its interpreter would not run the listener
    ),
    Row(
        "master-port-taken",
        *held(LISTEN.format(port=29500)),
        fleet="cpu",
        environ={"MASTER_ADDR": "sb0002"},
        values={"port": 29500},
    ),
    Row(
        "master-port-unreserved",
        *setting("net.ipv4.ip_local_port_range", "20000 60999"),
        fleet="cpu",
        environ={"MASTER_ADDR": "sb0002", "MASTER_PORT": "31000"},
        values={"ports": "31000"},
    ),
    Row("open-files-limit-low", *limit("nofile", 1024), fleet="cpu", values={"observed": 1024}),
    Row("file-size-limit-low", *limit("fsize", 1 << 20), fleet="cpu", values={"observed": "1 MiB"}),
    Row("cpu-time-limit-low", *limit("cpu", 7200), fleet="cpu", values={"observed": "2 h"}),
    Row("locked-memory-limit-low", *limit("memlock", 65536), values={"observed": "64 KiB"}),
    Row("process-limit-low", *limit("nproc", 1024), fleet="cpu", values={"observed": 1024}),
    Row(
        "sysctl-lost-at-reboot",
        *setting(SOMAXCONN, "8192"),
        fleet="cpu",
        values={"key": SOMAXCONN, "live": "8192", "boot": "no file sets it"},
    ),
    Row(
        "sysctl-lost-at-reboot",
        f"echo '{SOMAXCONN} = 128' >/etc/sysctl.d/99-zz.conf",
        "rm /etc/sysctl.d/99-zz.conf",
        fleet="cpu",
        values={"key": SOMAXCONN, "boot": "/etc/sysctl.d/99-zz.conf sets 128 at boot"},
        apart=("listen-queue-short",),
    ),
    Row(
        "sysctl-lost-at-reboot",
        "\n".join([HIDE_LINK, SET[0], f"echo '{SOMAXCONN} = 8192' >/etc/sysctl.conf", SYSTEMD[0]]),
        "\n".join([SYSTEMD[1], SET[1], SHOW_LINK]),
        fleet="cpu",
        values={"key": SOMAXCONN, "boot": "only /etc/sysctl.conf sets it, which systemd does not read"},
    ),
    Row(
        "conntrack-table-full",
        FULL + "\n" + logged("nf_conntrack: nf_conntrack: table full, dropping packet"),
        NOT_FULL,
        fleet="gpu",
        also=("kernel-table-full-logged",),
        values={"observed": 999999999},
    ),
    Row(
        "process-limit-low",
        *grouped("pids", "pids.max", "2048", "pids.max=2048"),
        fleet="cpu",
        values={"observed": 2048},
    ),
    Row(
        "cpus-too-few",
        *grouped("cpu", "cpu.cfs_quota_us", "150000", "cpu.max=150000 100000"),
        values={"ranks": 8, "observed": "1.5"},
    ),
    # The kernel shows the limit in its first network namespace alone.
    Row(
        "neighbour-table-small",
        shown_limit("1")[0] + "\n" + logged("neighbour: arp_cache: neighbor table overflow!"),
        fleet="gpu",
        also=("kernel-table-full-logged",),
        values={"observed": 1},
        healthy_first=False,
    ),
]

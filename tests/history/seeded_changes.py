"""Changes of one setting each, put into real hosts or into a job, and what `doctor changes` must tell first."""

from __future__ import annotations

import shlex
from typing import NamedTuple


class HostChange(NamedTuple):
    """A change on hosts."""

    category: str
    name: str
    script: str
    """sh text, run on each changed host."""
    everywhere: bool = False
    """On all hosts alike; else on one."""


def _sysctl(name: str, value: str, everywhere: bool = False) -> HostChange:
    path = "/proc/sys/" + name.replace(".", "/")
    # A value of a namespace of the host is set; one that the kernel has once is shown to the host alone.
    bound = f"f=$(mktemp /run/value.XXXX); echo '{value}' >$f; mount --bind $f {path}"
    is_of_namespace = name.startswith("net.") and not name.startswith("net.core.")
    return HostChange("sysctl", name, f"echo '{value}' >{path}" if is_of_namespace else bound, everywhere)


def _package(name: str, everywhere: bool = False) -> HostChange:
    change = f"/^Package: {name}$/,/^Version:/s/^Version: .*/Version: 99.1-1/"
    return HostChange("packages", name, f"sed -i '{change}' /var/lib/dpkg/status", everywhere)


def _file(category: str, name: str, path: str, text: str, everywhere: bool = False) -> HostChange:
    return HostChange(category, name, f"mkdir -p $(dirname {path}); printf '{text}' >{path}", everywhere)


def bound_over(category: str, name: str, path: str, text: str, everywhere: bool = False) -> HostChange:
    return HostChange(category, name, f"echo '{text}' >/run/shown; mount --bind /run/shown {path}", everywhere)


def _login(name: str, command: str, everywhere: bool = False) -> HostChange:
    return HostChange("login", name, f"echo {shlex.quote(command)} >>/root/.bashrc", everywhere)


SITE = "/usr/lib/python3/dist-packages"
GRO_ON = (  # ETHTOOL_SGRO of SIOCETHTOOL, as `ethtool -K eth0 gro on`
    'import array, fcntl, socket, struct; value = array.array("I", [0x2C, 1]);'
    'fcntl.ioctl(socket.socket(), 0x8946, struct.pack("16sP16x", b"eth0", value.buffer_info()[0]))'
)

CHANGES: tuple[HostChange, ...] = (
    _sysctl("net.ipv4.tcp_retries2", "7", everywhere=True),
    _sysctl("net.ipv4.tcp_keepalive_time", "600", everywhere=True),
    _sysctl("net.ipv4.tcp_rmem", "4096 65536 1048576"),
    _sysctl("net.ipv4.tcp_wmem", "4096 32768 1048576", everywhere=True),
    _sysctl("net.ipv4.tcp_syn_retries", "3"),
    _sysctl("net.ipv4.tcp_synack_retries", "2"),
    _sysctl("net.ipv4.tcp_fin_timeout", "11", everywhere=True),
    _sysctl("net.ipv4.tcp_mtu_probing", "1"),
    _sysctl("net.ipv4.tcp_slow_start_after_idle", "0", everywhere=True),
    _sysctl("net.ipv4.tcp_timestamps", "0"),
    _sysctl("net.ipv4.tcp_ecn", "1"),
    _sysctl("net.ipv4.tcp_max_syn_backlog", "2048", everywhere=True),
    _sysctl("net.ipv4.ip_local_port_range", "40000 60999"),
    _sysctl("net.ipv4.ip_local_reserved_ports", "60000-60015", everywhere=True),
    _sysctl("net.ipv4.conf.all.rp_filter", "2"),
    _sysctl("net.ipv4.conf.all.arp_ignore", "1", everywhere=True),
    _sysctl("net.ipv4.tcp_sack", "0"),
    _sysctl("net.ipv4.tcp_window_scaling", "0", everywhere=True),
    _sysctl("net.ipv4.tcp_dsack", "0"),
    _sysctl("net.core.somaxconn", "511", everywhere=True),
    _sysctl("net.core.rmem_max", "99999"),
    _sysctl("vm.swappiness", "1", everywhere=True),
    _sysctl("vm.overcommit_memory", "2"),
    _sysctl("vm.max_map_count", "65111"),
    _sysctl("kernel.pid_max", "32111", everywhere=True),
    _sysctl("fs.file-max", "100111"),
    _package("libc6"),
    _package("openssh-server", everywhere=True),
    _package("iproute2"),
    _package("nftables", everywhere=True),
    HostChange("packages", "sudo", r"sed -i '/^Package: sudo$/,/^$/d' /var/lib/dpkg/status"),
    _file("drivers", "NPU driver", "/usr/local/Ascend/driver/version.info", "Version=25.9.1\\n", everywhere=True),
    _file("drivers", "NPU firmware", "/usr/local/Ascend/firmware/version.info", "Version=7.9.0.1.220\\n"),
    _file("files", "/etc/sudoers.d/90-site", "/etc/sudoers.d/90-site", "ann ALL=(ALL) ALL"),
    _file("files", "/etc/security/access.conf", "/etc/security/access.conf", "- : ann : ALL", everywhere=True),
    HostChange("limits", "open files", "prlimit --pid 1 --nofile=3333:3333", everywhere=True),
    HostChange("limits", "locked memory", "prlimit --pid 1 --memlock=77777:77777"),
    HostChange("limits", "processes", "prlimit --pid 1 --nproc=7777:7777"),
    HostChange("mounts", "/dev/shm", "mount -o remount,size=1g /dev/shm", everywhere=True),
    HostChange("interfaces", "eth0", "ip link set eth0 mtu 1400"),
    HostChange("interfaces", "eth0", "ip link set eth0 mtu 9000", everywhere=True),
    HostChange("cards", "eth0 txqueuelen", "ip link set eth0 txqueuelen 77", everywhere=True),
    HostChange("cards", "eth0 gso_max_size", "ip link set eth0 gso_max_size 16384"),
    _login("pending signals", "ulimit -i 77")._replace(category="limits"),
    HostChange("cards", "eth0 qdisc", "tc qdisc replace dev eth0 root pfifo"),
    HostChange("names", "own name", "hostname another"),
    HostChange("cards", "eth0 gro", f"python3 -c '{GRO_ON}'"),
    HostChange("firewall", "nft inet site forward", "nft 'add table inet site; add chain inet site forward'"),
    HostChange("mounts", "/mnt", "mount -t tmpfs -o size=64m none /mnt", everywhere=True),
    HostChange("interfaces", "extra0", "ip link add extra0 type bridge", everywhere=True),
    _file("python", "deepspeed", f"{SITE}/deepspeed-0.17.1.dist-info/METADATA", "x", everywhere=True),
    _file("python", "transformers", f"{SITE}/transformers-4.57.1.dist-info/METADATA", "x"),
    HostChange("libraries", "flash_attn_2_cuda", f"printf other >{SITE}/flash_attn_2_cuda.so", everywhere=True),
    HostChange("libraries", "libnccl.so", "printf longer >/usr/local/lib/libnccl.so.2"),
    HostChange("environment", "NCCL_IB_DISABLE", "echo export NCCL_IB_DISABLE=1 >>/root/.bashrc", everywhere=True),
    HostChange("environment", "LD_LIBRARY_PATH", "echo export LD_LIBRARY_PATH=/opt/old >>/root/.bashrc"),
    HostChange("environment", "HCCL_CONNECT_TIMEOUT", "echo export HCCL_CONNECT_TIMEOUT=60 >>/root/.bashrc"),
    _package("bash", everywhere=True),
    _package("openssl"),
    _file("python", "accelerate", f"{SITE}/accelerate-1.9.0.dist-info/METADATA", "x", everywhere=True),
    _file("files", "/etc/nccl.conf", "/etc/nccl.conf", "NCCL_IB_HCA=mlx5_1\\n"),
    _file("files", "/etc/cron.d/site", "/etc/cron.d/site", "* * * * * root updatedb\\n", everywhere=True),
    HostChange("environment", "CONDA_DEFAULT_ENV", "echo export CONDA_DEFAULT_ENV=new >>/root/.bashrc"),
    HostChange("interfaces", "policy rules", "ip rule add from 10.99.0.0/16 table 77"),
    HostChange("files", "/etc/localtime", "ln -sfn /usr/share/zoneinfo/Asia/Tokyo /etc/localtime", everywhere=True),
    HostChange("interfaces", "eth0", "ip addr add 10.88.0.7/24 dev eth0"),
    HostChange("interfaces", "route 10.99.0.0/16", "ip route add 10.99.0.0/16 dev eth0", everywhere=True),
    HostChange("limits", "stack size", "prlimit --pid 1 --stack=1048576:1048576"),
    HostChange("environment", "HF_HOME", "echo export HF_HOME=/other >>/root/.bashrc", everywhere=True),
    HostChange("libraries", "zz.pth", f"echo /opt/old >{SITE}/zz.pth"),
    bound_over("system", "kernel command line", "/proc/cmdline", "root=/dev/sda1 iommu=pt"),
    bound_over(
        "system", "transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]"
    ),
    _login("umask", "umask 027"),
    _login("nice", "renice -n 5 -p $$ >/dev/null", everywhere=True),
    _login("OOM score", "echo 500 >/proc/$$/oom_score_adj"),
    HostChange("login", "CPUs", "python3 -c 'import os; os.sched_setaffinity(1, {1})'", everywhere=True),
    _login("scheduler", "chrt -b -p 0 $$"),
    _login("core dump filter", "echo 0x7f >/proc/$$/coredump_filter", everywhere=True),
    HostChange("interfaces", "lo", "ip link set lo mtu 16384", everywhere=True),
    HostChange("interfaces", "neighbour 10.88.0.9 of eth0", "ip neigh add 10.88.0.9 lladdr 02:00:00:00:00:07 dev eth0"),
    HostChange("interfaces", "router to 10.97.0.0/16", "ip route replace 10.97.0.0/16 via 10.77.9.2", everywhere=True),
    HostChange("files", "/root/.bashrc", "echo alias python3=/opt/python3 >>/root/.bashrc"),
    _file("files", "/root/.profile", "/root/.profile", "ulimit -c unlimited\\n", everywhere=True),
    _file("files", "/etc/pip.conf", "/etc/pip.conf", "[global]\\nindex-url = http://other/simple\\n", everywhere=True),
    _file("files", "/root/.config/pip/pip.conf", "/root/.config/pip/pip.conf", "[global]\\ntimeout = 1\\n"),
    _file("files", "/root/.ssh/config", "/root/.ssh/config", "Host *\\n Port 2222\\n", everywhere=True),
    HostChange("files", "/run/resolvconf/resolv.conf", "echo nameserver 10.9.9.9 >/run/resolvconf/resolv.conf"),
    HostChange("files", "/etc/os-release", "echo VERSION=other >/run/release", everywhere=True),
    HostChange("files", "/etc/alternatives/cc", "ln -sfn /usr/bin/gcc-99 /etc/alternatives/cc"),
    _file("files", "/usr/local/bin/torchrun", "/usr/local/bin/torchrun", "#!/bin/sh\\n", everywhere=True),
    _file("files", "/etc/systemd/system/site.service", "/etc/systemd/system/site.service", "[Unit]\\n"),
    _file("files", "/etc/iproute2/rt_tables", "/etc/iproute2/rt_tables", "77 jobs\\n", everywhere=True),
    HostChange("sources", "edited files of datasets", f"sed -i s/ab/cd/ {SITE}/datasets/load.py"),
    HostChange("sources", "own", f"sed -i s/ab/cd/ {SITE}/own/deep/model.py", everywhere=True),
    bound_over("kernel", "/sys/module/tcp_cubic/parameters/beta", "/sys/module/tcp_cubic/parameters/beta", "700"),
    bound_over(
        *("kernel", "/sys/kernel/mm/transparent_hugepage/defrag", "/sys/kernel/mm/transparent_hugepage/defrag"),
        *("[always] defer madvise never", True),
    ),
    bound_over("kernel", "/sys/devices/system/cpu/online", "/sys/devices/system/cpu/online", "0"),
    bound_over("kernel", "/sys/block/vda/queue/scheduler", "/sys/block/vda/queue/scheduler", "none [bfq]", True),
    HostChange(
        "kernel", "/sys/class/net/eth0/queues/rx-0/rps_cpus", "echo 1 >/sys/class/net/eth0/queues/rx-0/rps_cpus"
    ),
    HostChange("mounts", "/srv", "mount -o remount,noatime /srv", everywhere=True),
    HostChange("mounts", "/dev/shm", "mount -o remount,size=37m /dev/shm"),
    HostChange("names", "sb0003", "sed -i 's/^[0-9.]* *sb0003/10.77.99.9 sb0003/' /etc/hosts", everywhere=True),
    HostChange("environment", "CUBLAS_WORKSPACE_CONFIG", "echo export CUBLAS_WORKSPACE_CONFIG=:16:8 >>/root/.bashrc"),
    _sysctl("kernel.randomize_va_space", "0"),
    _sysctl("net.ipv4.conf.eth0.rp_filter", "1", everywhere=True)._replace(
        category="kernel", name="/proc/sys/net/ipv4/conf/eth0/rp_filter"
    ),
    HostChange("interfaces", "router to 10.55.0.0/16", "ip route add blackhole 10.55.0.0/16", everywhere=True),
    HostChange("login", "mode of /tmp", "chmod 755 /tmp"),
    HostChange("limits", "open files", "echo ulimit -Sn 512 >>/root/.bashrc", everywhere=True),
    HostChange("environment", "PIP_INDEX_URL", "echo export PIP_INDEX_URL=http://x/simple >>/root/.bashrc", True),
    HostChange("mounts", "options of /dev/shm", "mount -o remount,noexec /dev/shm"),
    HostChange("devices", "/dev/davinci0", "chmod 600 /dev/davinci0", everywhere=True),
    HostChange("devices", "/dev/davinci7", "rm /dev/davinci7"),
    HostChange("sources", "own", f"printf other >{SITE}/own/fused.so", everywhere=True),
    _file("files", "/etc/chrony/chrony.conf", "/etc/chrony/chrony.conf", "server b\\n", everywhere=True),
)
"""Hosts of `prepare`."""

PREPARE = (
    "python3 -c 'import os; os.sched_setaffinity(1, {0})';"
    " mkdir /run/resolvconf; cat /etc/resolv.conf >/run/resolvconf/resolv.conf; cat /etc/os-release >/run/release;"
    " ln -sfn /run/resolvconf/resolv.conf /etc/resolv.conf; ln -sfn /run/release /etc/os-release;"
    " mount -t tmpfs none /srv; ip route add 10.97.0.0/16 via 10.77.9.1;"
    f" cd {SITE}; mkdir -p datasets-3.0.dist-info datasets own/deep;"
    " echo 'x = ab' | tee datasets/load.py >own/deep/model.py; printf first >own/fused.so;"
    " digest=$(openssl dgst -sha256 -binary datasets/load.py | base64 | tr +/ -_ | tr -d =);"
    " echo datasets/load.py,sha256=$digest,7 >datasets-3.0.dist-info/RECORD;"
    f" printf first >{SITE}/flash_attn_2_cuda.so; printf first >/usr/local/lib/libnccl.so.2;"
    " echo '[always] madvise never' >/run/pages;"
    " mount --bind /run/pages /sys/kernel/mm/transparent_hugepage/enabled"
)
"""What the hosts have before, beside what they have anyway."""


JOB = ("torchrun", "--nproc-per-node", "2", "train.py", "--config", "run.yaml")


class JobChange(NamedTuple):
    """A change of the job: its launch line, or files of its folder, before and after."""

    category: str
    name: str
    line: tuple[str, ...] = (
        "torchrun",
        "--nproc-per-node",
        "2",
        "train.py",
        "--data=tokens.bin",
        "--config",
        "run.yaml",
    )
    files: tuple[tuple[str, str], ...] = ()


JOB_CHANGES: tuple[JobChange, ...] = (
    JobChange("launch", "--nproc-per-node", ("torchrun", "--nproc-per-node", "4", "train.py", "--config", "run.yaml")),
    JobChange("environment", "NCCL_ALGO", ("env", "NCCL_ALGO=Ring", *JobChange("", "").line)),
    JobChange("code", "file pkg/model.py", files=(("pkg/model.py", "x = 2\n"),)),
    JobChange("code", "file train.py", files=(("train.py", "import torch  # other\n"),)),
    JobChange("code", "file run.yaml", files=(("run.yaml", "lr: 3e-4\n"),)),
    JobChange("code", "file ds_config.json", files=(("ds_config.json", '{"zero": 3}'),)),
    JobChange("code", "file pkg/kernel.cu", files=(("pkg/kernel.cu", "__global__ void k() {}"),)),
    JobChange("code", "file .env", files=((".env", "NCCL_DEBUG=INFO"),)),
    JobChange("code", "file fused.so", files=(("fused.so", "other"),)),
    JobChange("code", "file tokens.bin", files=(("tokens.bin", "b" * (17 << 20)),)),
    JobChange("launch", "--lr", (*JobChange("", "").line, "--lr", "3e-4")),
    JobChange("launch", "words", ("torchrun", "--nproc-per-node", "2", "train.py", "fast", "--config", "run.yaml")),
    JobChange("code", "revision of ", files=((".git/refs/heads/main", "b" * 40 + "\n"),)),
)

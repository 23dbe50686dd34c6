# What `doctor check` reads on a host without accelerators, as a plain shell script for the peers in the bench.
LC_ALL=C
export LC_ALL
show() { for f in "$@"; do [ -r "$f" ] && { echo "== $f"; cat "$f"; }; done; }
show /proc/sys/kernel/hostname /proc/meminfo /proc/self/limits /proc/net/tcp /proc/net/tcp6 /proc/sysvipc/shm
for k in net/core/somaxconn net/ipv4/tcp_max_syn_backlog net/ipv4/tcp_syncookies net/ipv4/ip_local_reserved_ports \
    net/ipv4/ip_local_port_range net/netfilter/nf_conntrack_max net/netfilter/nf_conntrack_count; do
    show "/proc/sys/$k"
done
show /etc/sysctl.conf /etc/sysctl.d/*.conf /run/sysctl.d/*.conf /usr/lib/sysctl.d/*.conf
df -P -k / /tmp /dev/shm
ls -l /dev/shm
ip -o addr show
nft -j list ruleset
getent ahosts "$(cat /proc/sys/kernel/hostname)"
for d in /sys/bus/pci/devices/*; do show "$d/vendor" "$d/device"; done
command -v nvidia-smi npu-smi hccn_tool
python3 --version
echo "== end"

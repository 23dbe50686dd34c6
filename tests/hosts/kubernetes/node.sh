#!/bin/sh
# Pid 1 of a node of the test cluster: containerd and a kubelet in namespaces of their own, which end with it.
# $1: the node's name; $2: its number; $3: its folder; $4: that of the programs; $5: that of what all nodes share.
set -eu
name=$1 number=$2 folder=$3 programs=$4 shared=$5
PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount --make-rprivate /
hostname "$name"
mount -t tmpfs run /run
mount -t tmpfs log /var/log
mkdir -p "$folder/lib" "$folder/work" "$folder/kubelet" "$folder/containerd" /run/lock
mount -t overlay var-lib -o "lowerdir=/var/lib,upperdir=$folder/lib,workdir=$folder/work" /var/lib
mkdir -p /var/lib/kubelet /var/lib/cni
printf '127.0.0.1 localhost\n10.77.0.%s %s\n' "$((10 + number))" "$name" >"$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts
mount --make-rshared /

# The kubelet insists on these; the machine's own values stay as they are.
mkdir "$folder/sys"
for pair in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=$folder/sys/$(echo "${pair%=*}" | tr / _)
    echo "${pair#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${pair%=*}"
done

until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
# The node's address is on the bridge that its pods hang on: one network for nodes and pods of all nodes.
ip link set lo up
ip link add cni0 type bridge
ip link set eth0 master cni0
ip addr add "10.77.0.$((10 + number))/16" dev cni0
ip link set eth0 up
ip link set cni0 up
ip route add default via 10.77.0.1
nft -f - <<RULES
table ip services {
    chain output { type nat hook output priority -100; ip daddr 10.96.0.1 tcp dport 443 dnat to 10.77.0.1:6443; }
    chain prerouting { type nat hook prerouting priority -100; ip daddr 10.96.0.1 tcp dport 443 dnat to 10.77.0.1:6443; }
    chain postrouting { type nat hook postrouting priority 100; ct status dnat masquerade; }
}
RULES
sysctl -q -w net.ipv4.ip_forward=1

mkdir "$folder/net.d"
cat >"$folder/net.d/10-pods.conflist" <<CNI
{"cniVersion": "0.3.1", "name": "pods", "plugins": [
 {"type": "bridge", "bridge": "cni0", "mtu": 1500,
  "ipam": {"type": "host-local", "dataDir": "$folder/ipam",
           "ranges": [[{"subnet": "10.77.0.0/16", "rangeStart": "10.77.$((10 + number)).2",
                        "rangeEnd": "10.77.$((10 + number)).250", "gateway": "10.77.0.$((10 + number))"}]],
           "routes": [{"dst": "0.0.0.0/0"}]}}]}
CNI

cat >"$folder/containerd.toml" <<CONFIG
version = 2
root = "$folder/containerd"
state = "/run/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$folder/net.d"
CONFIG
containerd --config "$folder/containerd.toml" >"$folder/containerd.log" 2>&1 &
until [ -S /run/containerd/containerd.sock ] && ctr version >/dev/null 2>&1; do sleep 0.1; done
for image in "$shared"/images/*.tar; do ctr -n k8s.io images import "$image" >>"$folder/images.log" 2>&1; done

cat >"$folder/kubelet.yaml" <<CONFIG
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
protectKernelDefaults: true
clusterDNS: [10.77.0.1]
clusterDomain: cluster.local
resolvConf: $shared/resolv.conf
maxPods: 110
syncFrequency: 5s
nodeStatusUpdateFrequency: 2s
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "0%", nodefs.available: "0%", imagefs.available: "0%", nodefs.inodesFree: "0%"}
allowedUnsafeSysctls: ["net.*"]
CONFIG
cat >"$folder/kubelet.sh" <<SCRIPT
setsid "$programs/kubelet" --config="$folder/kubelet.yaml" --kubeconfig="$shared/admin.conf" --hostname-override="$name" \
    --node-ip="10.77.0.$((10 + number))" --root-dir="$folder/kubelet" --cert-dir="$folder/pki" \
    --container-runtime=remote --container-runtime-endpoint=unix:///run/containerd/containerd.sock \
    --register-node=true >>"$folder/kubelet.log" 2>&1 </dev/null &
echo \$! >"$folder/kubelet.pid"
SCRIPT
sh "$folder/kubelet.sh"
while :; do wait || true; sleep 1; done

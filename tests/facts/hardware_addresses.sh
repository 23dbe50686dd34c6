# Runs a command in a network namespace that a pair of virtual cards connects with another one, that of process $other.
# known: what its kernel knows of the other's card; else an old answer, which it believes for 5 s more.
set -e
unshare -n sleep 90 & export other=$!
trap 'kill $other' EXIT
until test "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/$$/ns/net)"; do sleep 0.05; done
ip link add near address 02:fc:00:00:00:01 type veth peer name far address 02:fc:00:00:00:02 netns $other
ip address add 10.7.7.1/24 dev near
ip address add fd07::1/64 dev near nodad
ip link set near up
nsenter -n -t $other sh -c 'ip address add 10.7.7.2/24 dev far; ip address add fd07::2/64 dev far nodad; ip link set far up'
until ip link show near | grep -q "state UP"; do sleep 0.05; done
until nsenter -n -t $other ip link show far | grep -q "state UP"; do sleep 0.05; done
ip neigh replace 10.7.7.2 ${known:-lladdr 02:fc:00:00:00:09 nud stale} dev near
"$@"

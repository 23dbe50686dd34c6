#!/bin/bash
# Builds a Kubernetes control plane and kubelet from Debian's source package, into the folder that is given.
# Once: a folder that is whole already is left as it is, and a build that was interrupted goes on where it was (the
# whole takes four minutes on two idle cores). Needs root, and Debian's apt with a source of packages.
#
#     bash tests/hosts/kubernetes/build.sh [FOLDER]
#
# FOLDER: $KUBERNETES_BIN where it is set, else ~/.cache/cluster-doctor/kubernetes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${KUBERNETES_BIN:-${XDG_CACHE_HOME:-$HOME/.cache}/cluster-doctor/kubernetes}}
programs="kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl"
whole() { for name in $programs pause device-plugin; do [ -x "$folder/$name" ] || return 1; done; }
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
exec 9>"$folder/.lock"
flock 9
if whole; then echo "$folder"; exit; fi

if ! [ -x /usr/lib/go-1.19/bin/go ] || ! command -v etcd containerd runc dpkg-source gcc >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        golang-1.19-go etcd-server containerd runc dpkg-dev gcc libc6-dev >&2
fi
work=$folder/build # always the same: the compiler's cache knows packages by their paths
export GOPATH=$work/go GO111MODULE=off CGO_ENABLED=0 GOCACHE=$work/gocache GOFLAGS= PATH=/usr/lib/go-1.19/bin:$PATH
root=$GOPATH/src/k8s.io/kubernetes # Old Go code in the way of its time: a GOPATH, and no modules.

fetch() {
    # The archive of sources: what apt has for binaries, asked for sources, in lists of its own.
    rm -rf "$work"
    mkdir -p "$work/lists/partial" "$work/src"
    sed 's/^Types:.*/Types: deb-src/' /etc/apt/sources.list.d/*.sources >"$work/apt.sources" 2>/dev/null || true
    sed -n 's/^deb /deb-src /p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list >"$work/apt.list" 2>/dev/null || true
    list=$work/apt.sources
    [ -s "$list" ] || list=$work/apt.list
    apt=(-o "Dir::Etc::sourcelist=$list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$work/lists"
        -o APT::Sandbox::User=root)
    apt-get "${apt[@]}" -qq update >&2
    (cd "$work/src" && apt-get "${apt[@]}" -qq source kubernetes >&2)
    mkdir -p "$GOPATH/src/k8s.io"
    mv "$work"/src/kubernetes-*/ "$root"
    cd "$root"

    # This file is not in the archive, and the apiserver does not build without it.
    inputs=$({
        grep -rl --include='*.go' '+k8s:openapi-gen=' pkg
        cd staging/src && grep -rl --include='*.go' '+k8s:openapi-gen=' k8s.io | grep -vE '/(code-generator|sample-apiserver)/' |
            sed 's,^,vendor/,'
    } | xargs -n1 dirname | sort -u | sed 's,^,k8s.io/kubernetes/,' | paste -sd,)
    go build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
    "$work/openapi-gen" -O zz_generated.openapi -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt \
        -p k8s.io/kubernetes/pkg/generated/openapi -o "$GOPATH/src" -r "$work/violations" -i "$inputs" >&2
    touch "$work/fetched"
}
if ! [ -e "$work/fetched" ]; then fetch; fi
cd "$root"

version=k8s.io/kubernetes/vendor/k8s.io/component-base/version # where GOPATH has it
for name in $programs; do
    [ -x "$folder/$name" ] && continue
    nice -n 5 go build -o "$work/$name" -ldflags \
        "-s -w -X $version.gitVersion=v1.20.2 -X $version.gitMajor=1 -X $version.gitMinor=20" "./cmd/$name"
    mv "$work/$name" "$folder/$name"
done
gcc -Os -static -o "$folder/pause" build/pause/linux/pause.c
mkdir -p cmd/device-plugin
cp "$here/device_plugin.go" cmd/device-plugin/main.go
nice -n 5 go build -o "$folder/device-plugin" -ldflags "-s -w" ./cmd/device-plugin
rm -rf "$work"
echo "$folder"

#!/bin/sh
# Installs cluster-doctor @VERSION@ without a network:  sh install.sh [FOLDER]
# FOLDER is a new virtual environment; default: ~/.local/share/cluster-doctor. PYTHON=/path/to/python3 chooses Python.
# Nothing outside of FOLDER is written.
set -eu

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || fail "its own folder cannot be read"
[ $# -le 1 ] || fail "$# arguments; expected at most one, the folder to install into"
case "${1:-}" in
-*) fail "$1: no such option; expected at most one argument, the folder to install into" ;;
esac
folder=${1:-${HOME:-/root}/.local/share/cluster-doctor}

[ "$(uname -s)" = Linux ] || fail "this is $(uname -s); expected Linux"
machine=$(uname -m)
case " @MACHINES@ " in
*" $machine "*) ;;
*) fail "this machine is $machine; expected one of: @MACHINES@" ;;
esac

python=${PYTHON:-}
if [ -z "$python" ]; then
    for candidate in python3 python3.13 python3.12 python3.11 python3.10; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] not in "@PYTHONS@".split())' 2>/dev/null; then
            python=$candidate
            break
        fi
    done
    [ -n "$python" ] || fail "no Python @OLDEST@ to @NEWEST@ in PATH; expected one, or PYTHON=/path/to/python3"
fi
version=$("$python" -c 'import platform, sys
print("%d.%d" % sys.version_info[:2], platform.python_implementation(), *platform.libc_ver())' 2>/dev/null) ||
    fail "$python does not run; expected a Python @OLDEST@ to @NEWEST@"
case " @PYTHONS@ " in
*" ${version%% *} "*) ;;
*) fail "$python is Python ${version%% *}; expected @OLDEST@ to @NEWEST@, or PYTHON=/path/to/python3" ;;
esac
case "$version" in
*" CPython glibc "*) ;;
*) fail "$python is ${version#* }; expected CPython with glibc @GLIBC@ or later (musl has no wheels here)" ;;
esac
"$python" -c 'import platform, sys
numbers = lambda text: [int(part) for part in text.split(".")[:2]]
sys.exit(numbers(platform.libc_ver()[1]) < numbers("@GLIBC@"))' ||
    fail "glibc is ${version##* }; expected @GLIBC@ or later"
"$python" -c 'import venv' 2>/dev/null || fail "$python has no module venv; expected one (a package such as python3-venv)"

if [ -e "$folder" ] && [ ! -f "$folder/pyvenv.cfg" ] && [ -n "$(ls -A -- "$folder" 2>/dev/null || echo file)" ]; then
    fail "$folder exists and is no virtual environment; expected a new or empty folder"
fi

# Before anything of the archive runs: this script holds the hash of the list, and the list those of all other files.
bad=$("$python" -I -c 'import hashlib, os, sys
here, expected = sys.argv[1:]
def digest(name):
    with open(os.path.join(here, name), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
if digest("SHA256SUMS") != expected:
    sys.exit(print("SHA256SUMS") or 1)
with open(os.path.join(here, "SHA256SUMS")) as file:
    sums = dict(reversed(line.rstrip("\n").split("  ", 1)) for line in file)
for name in ["wheels/" + name for name in sorted(os.listdir(os.path.join(here, "wheels")))] + sorted(sums):
    if name not in sums or digest(name) != sums[name]:
        sys.exit(print(name) or 1)' "$here" @SUMS@ 2>/dev/null) ||
    fail "${bad:-a file} in $here is not what the archive was made with; expected one whose checksum was compared"

"$python" -m venv --without-pip -- "$folder" || fail "$folder cannot be made a virtual environment"
"$folder/bin/python" "$here/wheels/@PIP@/pip" --isolated --disable-pip-version-check --no-cache-dir install --quiet \
    --no-index --find-links "$here/wheels" --require-hashes --requirement "$here/requirements.txt" ||
    fail "pip could not install from $here/wheels; see above"
"$folder/bin/doctor" --version >/dev/null || fail "$folder/bin/doctor does not run"
echo "$("$folder/bin/doctor" --version) is installed: $folder/bin/doctor check"

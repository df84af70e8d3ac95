#!/bin/sh
# Installs what building needs and this machine lacks, and says what only a person
# can install. Does nothing, quickly, when all is there.
set -eu
cd "$(dirname "$0")/.."

want_go=$(sed -n 's/^go //p' go.mod)
if ! command -v go >/dev/null 2>&1; then
	echo "make: Go is not installed. Install Go $want_go or newer and put its bin folder into PATH." >&2
	exit 1
fi
# Inside the module the go command fetches a newer toolchain itself, if it may.
if ! have_go=$(go env GOVERSION 2>&1); then
	echo "make: this Go cannot build the module: $have_go" >&2
	echo "make: install Go $want_go or newer." >&2
	exit 1
fi

missing=
lacks() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
lacks mmdebstrap mmdebstrap
lacks mkfs.erofs erofs-utils
lacks unshare util-linux
lacks git git
lacks gcc gcc
lacks curl curl
lacks openssl openssl
lacks python3 python3
lacks npm npm
# Debian splits ensurepip off; it is for the clients that tests run.
python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
[ -e /usr/include/stdlib.h ] || missing="$missing libc6-dev"
[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing="$missing debian-archive-keyring"
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
	echo "make: please install:$missing (this machine has no apt-get)" >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "make: please run as root: apt-get install$missing" >&2
	exit 1
fi
echo "==> install$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # a list of words
if ! { apt-get -q update && apt-get -qy install --no-install-recommends $missing; } >"$log" 2>&1 </dev/null; then
	tail -n 30 "$log" >&2
	echo "make: apt-get could not install$missing; correct what it says above and run make again" >&2
	exit 1
fi

#!/bin/sh
# Installs the clients that e2e/clients runs, as published, with all that they need
# pinned. They are kept in CUBE_CACHE/clients, by content of the lists, and nothing is
# done, quickly, when they are there. Prints the folder: js/node_modules, python/bin,
# and bin/node in it.
set -eu
cd "$(dirname "$0")/.."
lists=$PWD/e2e/clients/testdata
cache=${CUBE_CACHE:-/var/cache/cube}/clients

fail() {
	echo "clients: $1" >&2
	exit 1
}

# The first Python that is new enough and can make an environment of its own.
python=
for p in python3 /usr/bin/python3; do
	if "$p" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
		python=$p
		break
	fi
done
[ -n "$python" ] || fail "no Python 3.10 or newer that can make environments; on Debian: apt-get install python3-venv"

key=$(cat "$lists/js/package.json" "$lists/js/package-lock.json" "$lists/python/requirements.txt" scripts/clients.sh | sha256sum | cut -c1-16)
home=$cache/$key-$("$python" -c 'import sys, platform; print("py%d.%d-%s" % (*sys.version_info[:2], platform.machine()))')
there() { [ -x "$home/bin/node" ] && "$home/python/bin/python" -c '' 2>/dev/null; }
if there; then
	echo "$home"
	exit 0
fi

# Node.js itself is among the packages: the clients need a newer one than Debian has.
command -v npm >/dev/null 2>&1 || fail "npm is not installed; on Debian: apt-get install --no-install-recommends npm"

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if there; then # somebody else was waited for
	echo "$home"
	exit 0
fi
echo "==> install the clients for e2e/clients" >&2
new=$cache/.new.$$
rm -rf "$new"
mkdir "$new"
log=$new/install.log
trap 'rm -rf "$new"' EXIT
trap 'exit 143' INT TERM
said() {
	tail -n 30 "$log" >&2
	fail "$1"
}
mkdir "$new/js" "$new/bin"
cp "$lists/js/package.json" "$lists/js/package-lock.json" "$new/js/"
(cd "$new/js" && npm ci --ignore-scripts --no-audit --no-fund) >"$log" 2>&1 </dev/null || said "npm could not install the packages"
for node in "$new"/js/node_modules/node-linux-*/bin/node; do
	[ -x "$node" ] && "$node" --version >/dev/null 2>>"$log" && ln -s "../${node#"$new"/}" "$new/bin/node"
done
[ -x "$new/bin/node" ] || said "npm has no Node.js for this machine ($(uname -m)); install Node.js 20.18 or newer and link it as bin/node"

# The environment is moved afterwards: its python finds itself by where it is, and
# nobody calls its scripts.
"$python" -m venv "$new/python" >>"$log" 2>&1 || said "$python could not make an environment"
"$new/python/bin/python" -m pip install --disable-pip-version-check --no-input --no-deps -r "$lists/python/requirements.txt" \
	>>"$log" 2>&1 </dev/null || said "pip could not install the packages"
"$new/python/bin/python" -m pip check >>"$log" 2>&1 || said "the list of Python packages does not fit together"

chmod 755 "$new"
rm -rf "$home"
mv -T "$new" "$home"
echo "$home"

#!/bin/sh
# Runs a command with a server of its own beside whatever runs here: own state, own
# run directory, free ports. CUBE_RUN and CUBE_STATE lead to it; it ends with the command.
set -eu
cd "$(dirname "$0")/.."
CUBE_RUN=/run/cube-with-$$
CUBE_STATE=${TMPDIR:-/var/tmp}/cube-with-$$
mkdir -m 711 "$CUBE_STATE" # sentries, which run as nobody, pass through it
export CUBE_RUN CUBE_STATE
unset CUBE_API_URL CUBE_API_KEY E2B_SANDBOX_URL
finish() {
	status=$?
	trap - EXIT
	timeout -k 5 60 bin/cube down >/dev/null || status=1
	rm -rf "$CUBE_STATE" "$CUBE_RUN"
	exit "$status"
}
trap finish EXIT
trap 'exit 143' INT TERM
bin/cube template build base >/dev/null
bin/cube serve -d --listen 127.0.0.1:0 --data-listen 127.0.0.1:0 >/dev/null
"$@"

#!/bin/sh
# gofmt, go vet and staticcheck over the whole tree: with gVisor as it is, which is what
# our go.mod says; with gvisor/patches over what links it; and over what they change in
# gVisor. staticcheck is built once for each version and kept in the cache. All have their
# say before it fails.
set -eu
cd "$(dirname "$0")/.."
cache=${CUBE_CACHE:-/var/cache/cube}
export CGO_ENABLED=0
status=0

go run ./scripts/patch-gvisor
tag=cube_patched
linking="./gvisor/... ./cmd/cube-sentry"
changed=$(cat .cache/gvisor/packages)

echo "==> gofmt"
dirty=$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 gofmt -l)
if [ -n "$dirty" ]; then
	echo "$dirty" >&2
	echo "lint: these files are not gofmt-clean; run gofmt -w on them" >&2
	status=1
fi

echo "==> go vet"
patched="-modfile=.cache/gvisor/go.mod -tags=$tag"
# shellcheck disable=SC2086 # lists of words, here and below
{
	go vet ./... || status=1
	go vet $patched $linking || status=1
	# gVisor's own code does not keep to these two.
	go vet $patched -composites=false -unsafeptr=false $changed || status=1
}

key=$(cat tools/go.mod tools/go.sum | sha256sum | cut -c1-16)-$(go env GOVERSION GOARCH | tr '\n' '-')
tool=$cache/bin/${key%-}/staticcheck
if [ ! -x "$tool" ]; then
	echo "==> build staticcheck"
	mkdir -p "$(dirname "$tool")"
	(cd tools && go build -o "$tool.$$" honnef.co/go/tools/cmd/staticcheck)
	mv "$tool.$$" "$tool"
fi
echo "==> staticcheck"
export STATICCHECK_CACHE="$cache/staticcheck"
"$tool" ./... || status=1
# It has no -modfile, and in GOFLAGS it does not bear one.
export GOWORK="$PWD/.cache/gvisor/go.work"
# shellcheck disable=SC2086
"$tool" -tags "$tag" $linking || status=1
# Of gVisor's packages only what is in the files that we add.
added=$(git ls-files --cached --others --exclude-standard 'gvisor/patches/_added/*.go' | sed 's|^gvisor/patches/_added|.cache/gvisor/src|')
if [ -n "$added" ]; then
	# shellcheck disable=SC2086
	found=$("$tool" -tags "$tag" $changed | grep -F "$added" || true)
	if [ -n "$found" ]; then
		echo "$found" >&2
		echo "lint: in what gvisor/patches/_added becomes" >&2
		status=1
	fi
fi
exit "$status"

#!/bin/sh
# gofmt, go vet and staticcheck over the whole tree. staticcheck is built once for
# each version and kept in the cache. All three have their say before it fails.
set -eu
cd "$(dirname "$0")/.."
cache=${CUBE_CACHE:-/var/cache/cube}
status=0

echo "==> gofmt"
dirty=$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 gofmt -l)
if [ -n "$dirty" ]; then
	echo "$dirty" >&2
	echo "lint: these files are not gofmt-clean; run gofmt -w on them" >&2
	status=1
fi

echo "==> go vet"
CGO_ENABLED=0 go vet ./... || status=1

key=$(cat tools/go.mod tools/go.sum | sha256sum | cut -c1-16)-$(go env GOVERSION GOARCH | tr '\n' '-')
tool=$cache/bin/${key%-}/staticcheck
if [ ! -x "$tool" ]; then
	echo "==> build staticcheck"
	mkdir -p "$(dirname "$tool")"
	(cd tools && CGO_ENABLED=0 go build -o "$tool.$$" honnef.co/go/tools/cmd/staticcheck)
	mv "$tool.$$" "$tool"
fi
echo "==> staticcheck"
STATICCHECK_CACHE=$cache/staticcheck CGO_ENABLED=0 "$tool" ./... || status=1
exit "$status"

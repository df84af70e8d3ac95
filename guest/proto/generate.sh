#!/bin/sh
# Writes guest/envdpb from the definitions in this folder. Needs protoc
# (Debian: protobuf-compiler) and go; installs the two generators into a folder of its own.
set -eu
cd "$(dirname "$0")"
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
GOBIN=$tools go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN=$tools go install connectrpc.com/connect/cmd/protoc-gen-connect-go@v1.21.1
PATH=$tools:$PATH protoc -I . \
	--go_out=../.. --go_opt=module=cubesandbox \
	--connect-go_out=../.. --connect-go_opt=module=cubesandbox \
	process.proto filesystem.proto

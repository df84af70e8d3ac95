#!/bin/sh
# Prints the version of the sentry: it decides which images can be restored, so it
# names gVisor's code, our patches to it ("stock" is none) and the architecture,
# and not the version of the product.
set -eu
cd "$(dirname "$0")/.."
module=$(sed -n 's/^[[:space:]]*gvisor\.dev\/gvisor v0\.0\.0-\([0-9]*-[0-9a-f]*\).*/\1/p' go.mod)
if [ -z "$module" ]; then
	echo "engine-version: go.mod does not require gvisor.dev/gvisor v0.0.0-TIME-COMMIT" >&2
	exit 1
fi
echo "$module-stock-$(go env GOARCH)"

#!/bin/sh
# Writes http/openapi from openapi.yaml. The generator is a tool of the module in
# tools/, so that it is no dependency of the product.
set -eu
cd "$(dirname "$0")"
mkdir -p openapi
(cd ../tools && go tool oapi-codegen -generate models,skip-prune -package openapi ../http/openapi.yaml) >openapi/types.gen.go

# What one does here, by one word each; make alone lists them.
#
# Slow things are kept by content under CUBE_CACHE, not in the checkout, so a fresh
# clone on a machine that has built before is quick.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

export CUBE_CACHE ?= /var/cache/cube
export GOCACHE := $(CUBE_CACHE)/go-build
export GOFLAGS := -trimpath -buildvcs=false

VERSION := $(shell cat VERSION)
# `cube version` names its commit where git can tell it. The other programs do not
# hold it: what they are made of decides what an image fits.
VCS := $(shell git status --porcelain >/dev/null 2>&1 && echo auto || echo false)

# What cube-sentry is built with: gVisor with gvisor/patches in the place of gVisor. Our
# own go.mod names gVisor as it is.
PATCHED := -modfile=.cache/gvisor/go.mod -tags=cube_patched
# sentry NAME VERSION FLAGS: builds bin/NAME.
sentry = CGO_ENABLED=0 go build $(3) -ldflags="-s -w -X gvisor.dev/gvisor/runsc/version.version=$$(cat .cache/gvisor/$(2))" \
	-o bin/$(1) ./cmd/cube-sentry

# Packages that start sandboxes: without the race detector (gVisor does not run with
# cgo).
BOXES := ./gvisor/... ./e2e/...
# Everything else runs with the race detector.
UNITS = $(shell go list ./... | grep -v -E '^cubesandbox/(gvisor|e2e|cmd/cube-sentry)(/|$$)')
GOTEST := go run ./scripts/gotest

.PHONY: help up machine patch build stock template serve demo clients test lint unit patches boxes check soak bench conformance down clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

up: build template serve demo ## install what is missing, build, start the server, show a first sandbox
	@echo "==> for clients, in a shell: eval \"\$$(bin/cube env)\""
	@bin/cube env

machine:
	@scripts/machine.sh

patch: machine ## gVisor with gvisor/patches, in the cache
	@go run ./scripts/patch-gvisor

build: patch ## the programs, in bin/
	@echo "==> build bin/"
	@mkdir -p bin
	@CGO_ENABLED=0 go build -buildvcs=$(VCS) -ldflags='-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/cube
	@CGO_ENABLED=0 go build -ldflags='-s -w -E cube_guest_entry -X cubesandbox/guest/agent.Version=$(VERSION)' -o bin/ ./cmd/cube-guest
	@CGO_ENABLED=0 go build -ldflags='-s -w' -o bin/ ./cmd/cube-network
	@$(call sentry,cube-sentry,version,$(PATCHED))
	@CGO_ENABLED=0 go run ./scripts/pack-agent bin/cube-guest bin/cube-guest.erofs

stock: patch ## bin/cube-sentry-stock, of gVisor without our patches: to compare with, never installed
	@echo "==> build bin/cube-sentry-stock"
	@mkdir -p bin
	@$(call sentry,cube-sentry-stock,version-stock,)

template: build ## the template base; again only when something has changed
	@echo "==> template base"
	@bin/cube template build base

serve: template ## the server, in the background, unless it runs already
	@echo "==> serve"
	@bin/cube serve -d

demo: template ## save, kill, bring back and clone, in one table
	@bin/cube demo

test: lint unit patches boxes ## lint, unit tests with the race detector, one end-to-end pass

lint: machine ## gofmt, go vet, staticcheck
	@scripts/lint.sh

unit: machine
	@echo "==> unit tests"
	@CGO_ENABLED=1 $(GOTEST) unit -race -timeout 10m $(UNITS)

patches: patch ## unit tests of what gvisor/patches changes, in the copy of gVisor
	@echo "==> unit tests of gvisor/patches"
	@CGO_ENABLED=0 $(GOTEST) patches $(PATCHED) -timeout 10m $$(cat .cache/gvisor/packages)

clients: machine ## the clients of others that tests run
	@scripts/clients.sh >/dev/null

boxes: build stock template clients
	@echo "==> tests with sandboxes"
	@CGO_ENABLED=0 $(GOTEST) boxes $(PATCHED) -p 2 -timeout 15m ./e2e ./e2e/clients ./e2e/contract ./e2e/output ./e2e/service ./gvisor/... ./e2e/campaign ./e2e/differential/guest ./e2e/durable ./e2e/lab ./e2e/leak

check: test ## make test and every short form; what CI runs
	@mkdir -p .cache/results
	@echo "==> 16 clients fire at one sandbox, 300 rounds; 100 clones; 2 GiB both ways; each of E2B's clients"
	@CUBE_FORM=ci CGO_ENABLED=0 $(GOTEST) race $(PATCHED) -p 2 -count=1 -timeout 15m -run 'TestManyFireAtOneSandbox|TestCopiesDiffer|TestTwoGiB|E2BsClients|E2B239|ByDomain' ./e2e/service ./e2e/clients
	@echo "==> every process is killed at every boundary; 20 power cuts; full disks, each flipped bit; 20 rounds; 500 creates"
	@CUBE_FORM=ci CGO_ENABLED=0 $(GOTEST) losses $(PATCHED) -p 2 -count=1 -timeout 30m ./e2e/durable ./e2e/campaign
	@echo "==> programs at work and of the real world are saved, cloned and rolled back at random moments; each operation in copies; programs abuse their sandboxes; output through all of it"
	@CUBE_FORM=ci CGO_ENABLED=0 $(GOTEST) copies $(PATCHED) -p 2 -count=1 -timeout 20m ./e2e/programs/... ./e2e/realworld ./e2e/differential/... ./e2e/abuse ./e2e/output
	@echo "==> demo"
	@bin/cube demo --json >.cache/results/demo.json
	@echo "==> probe of the engine, 3 rounds"
	@bin/cube probe --engine --rounds 3 --json >.cache/results/probe.json
	@echo "==> probe of a server, 20 rounds"
	@scripts/with-server.sh bin/cube probe --rounds 20 --json >.cache/results/probe-api.json
	@echo "==> bench of a server, short form"
	@scripts/with-server.sh bin/cube bench --api --short --json >.cache/results/bench-api.json
	@echo "==> bench, short form"
	@bin/cube bench --short --baseline --json >.cache/results/bench.json
	@$(MAKE) --no-print-directory conformance

soak: build stock template clients ## the long forms
	@echo "==> tests with sandboxes, long forms"
	@CUBE_FORM=long CGO_ENABLED=0 $(GOTEST) soak $(PATCHED) -p 1 -count=1 -timeout 12h $(BOXES)
	@echo "==> probe, 20 rounds"
	@bin/cube probe --engine --rounds 20 --json >.cache/results/probe.json
	@scripts/with-server.sh bin/cube probe --rounds 20 --json >.cache/results/probe-api.json

bench: build stock template ## measure, against runsc too
	@bin/cube bench --baseline --stock

conformance: ## docs/conformance.md from the last results
	@go run ./scripts/conformance

down: ## end all sandboxes and processes of ours
	@if [ -x bin/cube ]; then bin/cube down; fi

clean: down ## remove what was built; caches and images stay
	@rm -rf bin .cache
	@echo "kept: $(CUBE_CACHE) (caches) and $${CUBE_STATE:-/var/lib/cube} (images)"

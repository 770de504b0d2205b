# Needs Go, git and make. A C compiler is used where there is one (the race detector); nothing ships cgo.

SHELL       := bash
.SHELLFLAGS := -o pipefail -c

FUZZTIME   ?= 10s
BENCHCOUNT ?= 6
BENCHTIME  ?= 1s
LONGTIME   ?= 24h
TOOLS      := bin/tools

# The race detector needs cgo; the product never does.
RACE := $(shell command -v $$(go env CC | cut -d' ' -f1) >/dev/null 2>&1 && echo -race)

.PHONY: help run build generate release-api toolchains rivals test test-python test-js test-packages dist lint fuzz attack sim torture mutations bench bench-full bench-smoke table long clean FORCE
.DEFAULT_GOAL := help

help:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile

run: build ## build ckptd and serve ./data, which is made with its key and a first token
	bin/ckptd serve --data ./data

build: ## build bin/ckptd, without cgo
	CGO_ENABLED=0 go build -trimpath -o bin/ckptd ./cmd/ckptd

generate: $(TOOLS)/buf ## make the Go, Python and JavaScript code of api/, the tables of docs/api.md, and the lists of help texts and errors
	cd api && ../$(TOOLS)/buf lint && ../$(TOOLS)/buf generate
	sdk/python/generate.sh
	sdk/js/generate.sh
	go test -count=1 ./internal/contract -update
	go test -count=1 ./cmd/ckptd -run TestHelpTexts -update
	go test -count=1 ./internal/lint -run TestErrorTexts -update

release-api: $(TOOLS)/buf ## make the API as it is what later ones must be compatible with
	cd api && ../$(TOOLS)/buf build --exclude-source-info -o released.json

toolchains: ## install what building the example plugins and measuring the redactor takes
	plugins/toolchains.sh
	plugins/redact/quality/install.sh

test: toolchains rivals ## install what the tests need and run all of them
	go mod download
	cd bench && go mod download
	CGO_ENABLED=0 go build ./...
ifeq ($(RACE),)
	@echo "make test: no C compiler found, so the race detector is SKIPPED"
	CGO_ENABLED=0 go test -timeout 30m ./...
else
	CGO_ENABLED=1 go test -race -timeout 30m ./...
	@# What runs in one goroutine here is long, and is skipped above: the race detector has nothing to see in it.
	CGO_ENABLED=0 go test -timeout 30m ./engine ./internal/sim ./internal/torture ./migrate
endif
	@# Where what FIPS 140-3 does not approve fails. The daemon is tried so by a test of its own.
	GODEBUG=fips140=only CGO_ENABLED=0 go test -short -timeout 10m -run 'Test(Save|Load|Blob|Verify|Fork|Migrat|Keyring|Wrap|Entry)' ./crypto ./engine
	cd bench && CGO_ENABLED=0 go test -timeout 10m ./...
	cd plugins/pdk && CGO_ENABLED=0 go test -timeout 10m ./...

test-python: ## test the Python package, in environments that it makes for that
	sdk/python/test.sh

test-js: ## test the JavaScript packages, with the packages that they need from npm
	sdk/js/test.sh

test-packages: ## build the packages with the program for this machine, install them from files and use them
	packaging/test.sh

dist: ## make the Python and npm packages for all systems in dist, with SHA256SUMS; nothing is published
	packaging/dist.sh

lint: $(TOOLS)/staticcheck $(TOOLS)/buf ## vet, also for macOS and Windows, staticcheck, gofmt, tidy go.mod files, the API's definition, import directions
	@files=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')) && \
	  if [ -n "$$files" ]; then echo "not formatted with gofmt:"; echo "$$files"; exit 1; fi
	go vet ./...
	cd bench && go vet ./...
	@# Systems that the tests do not run on.
	for target in darwin/arm64 windows/amd64; do \
	  export CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/}; \
	  echo "vetting and building for $$target"; \
	  go vet ./... && go build -o /dev/null ./cmd/ckptd || exit 1; \
	done
	$(TOOLS)/staticcheck ./...
	cd bench && ../$(TOOLS)/staticcheck ./...
	@# staticcheck does not know that what go:wasmexport exports is used
	for dir in plugins/pdk plugins/examples/go; do \
	  (cd $$dir && go vet ./... && GOOS=wasip1 GOARCH=wasm go vet ./... && \
	    GOOS=wasip1 GOARCH=wasm $(CURDIR)/$(TOOLS)/staticcheck -checks inherit,-U1000 ./...) || exit 1; \
	done
	go mod tidy -diff
	for dir in bench plugins/pdk plugins/examples/go; do (cd $$dir && go mod tidy -diff) || exit 1; done
	cd api && ../$(TOOLS)/buf lint && ../$(TOOLS)/buf breaking --against released.json
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && (cd api && ../$(TOOLS)/buf generate -o "$$fresh") && \
	  for f in api/ckptd/v1/*.go; do cmp "$$f" "$$fresh/$${f#api/}" || { echo "the code of the API is not current: make generate"; exit 1; }; done
	go test -count=1 ./internal/lint

# Tools are pinned in a module of their own, so that they never enter the product's go.mod.
$(TOOLS)/%: internal/tools/go.mod internal/tools/go.sum
	@mkdir -p $(TOOLS)
	cd internal/tools && CGO_ENABLED=0 go build -o ../../$(TOOLS)/ tool

fuzz: ## run every fuzz target for FUZZTIME (10s)
	@found=0; for pkg in $$(go list ./...); do \
	  names=$$(go test -list '^Fuzz' $$pkg) || exit 1; \
	  for name in $$(echo "$$names" | grep '^Fuzz'); do \
	    found=1; echo "== $$pkg $$name"; \
	    go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5x $$pkg || exit 1; \
	  done; \
	done; [ $$found = 1 ] || { echo "make fuzz: no fuzz target found"; exit 1; }

# How long the daemon is fuzzed over the wire.
ATTACK_TIME ?= 10m

attack: ## attack a daemon in every way that has worked once, and fuzz it over the wire for ATTACK_TIME (10m)
	CKPTD_ATTACK=$(ATTACK_TIME) go test -count=1 -v -timeout 0 -run '^TestServe(Attacks|Fuzz)$$' ./cmd/ckptd

# How long the simulation runs.
SIM_TIME ?= 10m

sim: ## run the simulation of the engine with new seeds for SIM_TIME (10m); SIM_SEED=n repeats one
	SIM_TIME=$(SIM_TIME) go test -count=1 -v -timeout 0 -run '^TestSimulation$$' ./internal/sim

# How long stores are tortured, and which rows and seed.
TORTURE_TIME ?= forever

torture: export TORTURE_TIME := $(TORTURE_TIME)
torture: ## kill, damage, starve and unplug stores until it is stopped, or for TORTURE_TIME; TORTURE_ROW="kill flip", TORTURE_SEED=n
	go test -count=1 -v -timeout 0 -run '^TestTorture$$' ./internal/torture

mutations: ## put in each bug of mutations.txt: the simulation, and the torture, must find all of them
	SIM_MUTATIONS="$${SIM_MUTATIONS:-all}" go test -count=1 -v -timeout 1h -run '^TestMutations$$' ./internal/sim
	TORTURE_MUTATIONS="$${TORTURE_MUTATIONS:-all}" go test -count=1 -v -timeout 1h -run '^TestMutations$$' ./internal/torture

# Real runs for the workload tau-bench, if they are there: a file that ckptd import reads.
RUNS ?= $(wildcard ../shared/data/tau-bench/gpt-4o-airline.json)
RUN_BENCH = bin/bench run $(if $(RUNS),--input tau-bench=$(RUNS)) --out bench/out

rivals: ## install the servers that the bench compares with
	bench/rivals.sh

bin/bench: FORCE # its reports name the commit, whatever GOFLAGS says of stamps
	@mkdir -p bin
	cd bench && CGO_ENABLED=0 go build -buildvcs=auto -o ../bin/bench ./cmd/bench

ifeq ($(BENCH),)
bench: rivals bin/bench ## ckptd beside its rivals in ten minutes; BENCH=OneWriter runs Go benchmarks of that name instead
	$(RUN_BENCH) --set some
else
bench: $(TOOLS)/benchstat
	@mkdir -p bench/out
	cd bench && CGO_ENABLED=0 go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) \
	  -count $(BENCHCOUNT) -timeout 2h . | tee out/go.txt
	$(TOOLS)/benchstat bench/out/go.txt
endif

bench-full: rivals bin/bench ## the same with everything, in hours
	$(RUN_BENCH) --set full --keep-going

bench-smoke: rivals bin/bench ## a little of everything in two minutes: fails on a broken driver, never on a time
	$(RUN_BENCH)/smoke --set smoke >/dev/null

table: ## measure the goals of the engine and the daemon, as docs/performance.md has them
	cd bench && CGO_ENABLED=0 go run ./cmd/table

# How large the campaigns are: random operations against the model, kills of a writing process, and how long others are killed.
long: export CKPTD_LONG ?= 1000000
long: export CKPTD_CRASH_CYCLES ?= 10000
long: export CKPTD_CRASH_TIME ?= 10m
long: ## the tests as campaigns: CKPTD_LONG operations, CKPTD_CRASH_CYCLES kills, kills for CKPTD_CRASH_TIME
	go test -count=1 -timeout $(LONGTIME) ./...

clean: ## remove what make built; stores stay
	rm -rf bin bench/out dist

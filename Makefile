# Tranche: a Kubernetes DRA driver that partitions and shares GPUs. `make help` lists what there is.

SHELL := /bin/bash
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GO      ?= go
# With -trimpath, a second clone uses what was compiled for the first, and programs what was for tests.
export GOFLAGS += -trimpath -buildvcs=false
# An older Go downloads the one in go.mod.
export GOTOOLCHAIN = auto
# go-nvml binds calls that NVML's header marks as deprecated.
export CGO_CFLAGS = -Wno-deprecated-declarations

IMAGE_REPOSITORY ?= ghcr.io/tranche-dev/tranche
# What `make push` pushes to, such as ghcr.io/tranche-dev.
REGISTRY         ?=
CLUSTER_DIR      ?= .cluster
SIMULATE         ?= h100x8
GATES            ?=
# Files of chart values for cluster-up.
VALUES           ?=

# NVML's functions are looked up when they are called, after dlopen of the
# driver's library.
LDFLAGS      = -s -w -X main.version=$(VERSION)
LAZY         = -extldflags=-Wl,-z,lazy
STATIC       = -linkmode external "-extldflags=-static -Wl,--unresolved-symbols=ignore-in-object-files"
# gRPC's traces bring in html/template, and with it the linker keeps all methods
# of all types: 70 MB of program in place of 40.
SMALL        = -tags grpcnotrace
# make build GOFIPS140=certified builds with Go's certified FIPS 140-3 module: see release/README.md.
# make build ARCH=arm64 BIN=… builds for another architecture of Linux, with a cross compiler.
BIN         ?= bin
HOST_ARCH   := $(shell $(GO) env GOHOSTARCH)
ARCH        ?= $(HOST_ARCH)
GCC_amd64    = x86_64-linux-gnu-gcc
GCC_arm64    = aarch64-linux-gnu-gcc
CHART        = deployments/helm/tranche
RELEASE      = $(shell awk '/^appVersion:/ {print $$2}' $(CHART)/Chart.yaml)
RELEASE_TOOL = bin/release
CLUSTER_TOOL = bin/cluster
CONTROLLER_GEN = sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0
CRDS           = deployments/helm/tranche/files/crds
HELM         = "$$($(CLUSTER_TOOL) path)/helm"

##@ Everyday

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "; print "Usage: make TARGET [VARIABLE=value]"} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Start a real Kubernetes on this machine with 8 simulated H100s and 8 MI300Xs and show what Tranche does
	@$(MAKE) --no-print-directory cluster-up SIMULATE=h100x8,mi300x8 VALUES="$(wildcard demo/values.yaml demo/*/settings/values.yaml)"
	@demo/run.sh

.PHONY: demo-down
demo-down: cluster-down ## Stop what `make demo` started

.PHONY: test
test: test-unit test-e2e ## Run every test there is (the end-to-end tests need root)

##@ Build

.PHONY: build
build: export GOARCH = $(ARCH)
build: export CGO_ENABLED = 1
build simulated-driver: export CC = $(if $(filter $(HOST_ARCH),$(ARCH)),gcc,$(GCC_$(ARCH)))
build: compiler kubectl-tranche ## Build the programs into bin/ (ARCH=arm64 BIN=<folder> for another architecture)
	@mkdir -p $(BIN)
	$(GO) build $(SMALL) -ldflags '$(LDFLAGS) $(LAZY)' -o $(BIN)/tranche-kubelet-plugin ./cmd/tranche-kubelet-plugin
	CGO_ENABLED=0 $(GO) build $(SMALL) -ldflags '$(LDFLAGS)' -o $(BIN)/tranche-controller ./cmd/tranche-controller
	CGO_ENABLED=0 $(GO) build $(SMALL) -ldflags '$(LDFLAGS)' -o $(BIN)/tranche-web ./cmd/tranche-web
	CGO_ENABLED=0 $(GO) build -ldflags '-s -w' -o $(BIN)/tranche-hook ./cmd/tranche-hook
	$(GO) build -tags osusergo,netgo -ldflags '-s -w $(STATIC)' -o $(BIN)/nvidia-cdi-hook github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook

# The simulated drivers, and the libnvidia-ml.so.1 of each branch of NVIDIA's.
NVML = $(BIN)/simulated-nvml
.PHONY: simulated-driver
simulated-driver: compiler ## Build the simulated drivers into bin/ (ARCH=arm64 BIN=<folder> for another architecture)
	@mkdir -p $(BIN) build
	GOARCH=$(ARCH) CGO_ENABLED=1 $(GO) build -tags osusergo,netgo -ldflags '-s -w $(STATIC)' -o $(BIN)/simulated-driver ./test/simulator/cmd/simulated-driver
	CC=gcc $(GO) build -o build/simulated-nvml ./test/simulator/cmd/simulated-nvml
	GOARCH=$(ARCH) CGO_ENABLED=1 build/simulated-nvml $(NVML)

# Everybody who uses GPUs downloads kubectl-tranche. Calls of methods by name, as in text/template, add 20 MB.
CLIENT_BYTES = 48000000
small = @[ "$$(stat -c %s $(1))" -le $(CLIENT_BYTES) ] || { echo "$(1) has more than $(CLIENT_BYTES) bytes: see with 'go tool nm -size -sort size' what is linked now" >&2; exit 1; }

# Tests in a cluster of their own process run it, too.
.PHONY: kubectl-tranche
kubectl-tranche:
	CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/kubectl-tranche ./cmd/kubectl-tranche
	$(call small,$(BIN)/kubectl-tranche)

# kubectl-tranche for systems other than Linux, as build/release/OS-ARCHITECTURE/kubectl-tranche.
CLIENTS = $(foreach a,amd64 arm64,darwin-$(a)/kubectl-tranche windows-$(a)/kubectl-tranche.exe)
.PHONY: $(addprefix build/release/,$(CLIENTS))
$(addprefix build/release/,$(CLIENTS)): build/release/%:
	CGO_ENABLED=0 GOOS=$(firstword $(subst -, ,$*)) GOARCH=$(lastword $(subst -, ,$(firstword $(subst /, ,$*)))) \
	  $(GO) build -ldflags '-s -w -X main.version=$(RELEASE)' -o $@ ./cmd/kubectl-tranche
	$(call small,$@)

.PHONY: release
release: release-tool ## Write a release to dist/: images, chart, kubectl-tranche, krew manifest, SBOMs, checksums
	@for arch in amd64 arm64; do $(MAKE) --no-print-directory build simulated-driver ARCH=$$arch BIN=build/release/linux-$$arch VERSION=$(RELEASE) || exit 1; done
	@$(MAKE) --no-print-directory $(addprefix build/release/,$(CLIENTS))
	@$(RELEASE_TOOL) dist --chart $(CHART) --repository $(IMAGE_REPOSITORY) --revision "$$(git rev-parse HEAD)"
	@cat dist/SHA256SUMS

.PHONY: release-version
release-version: ## Print the version that `make release` builds: the chart's
	@echo $(RELEASE)

.PHONY: push
push: release-tool ## Push images and chart of dist/ to REGISTRY and print their names with digests; build/sboms.txt names their SBOMs
	@mkdir -p build
	@$(RELEASE_TOOL) push --chart $(CHART) --registry "$(REGISTRY)" --sboms build/sboms.txt

.PHONY: generate
generate: ## Write what is generated: CustomResourceDefinitions, deep copies, tables of the documentation, public names
	$(GO) run $(CONTROLLER_GEN) object crd:maxDescLen=400 paths=./api/v1beta1 output:object:dir=api/v1beta1 output:crd:dir=$(CRDS)
	sha256sum $$(ls api/v1beta1/*.go | grep -v _test.go) $(CRDS)/*.yaml >api/v1beta1/generated.sha256
	$(GO) test ./cmd/kubectl-tranche -run '^TestCommands$$' -update
	$(GO) test ./docs -run '^(TestTables|TestModels|TestProfilesOfTheChart|TestPublicNames)' -update
	$(GO) test ./deployments/helm -run '^TestReadmeListsValues$$' -update

.PHONY: compiler
compiler:
	@test/compiler.sh $(ARCH)

.PHONY: image
image: build simulated-driver release-tool ## Write the container images to build/*.tar, without a registry or a container engine
	@mkdir -p build
	@test/image.sh $(IMAGE_REPOSITORY) && test/image.sh $(IMAGE_REPOSITORY) simulated-driver

.PHONY: release-tool
release-tool:
	@mkdir -p bin
	@cd release && CGO_ENABLED=0 $(GO) build -o ../$(RELEASE_TOOL) .

##@ Cluster on this machine (needs root)

.PHONY: cluster-tool
cluster-tool:
	@mkdir -p bin
	@cd test/cluster && CGO_ENABLED=0 $(GO) build -o ../../$(CLUSTER_TOOL) ./cmd/cluster

.PHONY: cluster-parts
cluster-parts: cluster-tool ## Build Kubernetes, containerd and the rest into the user's cache (minutes the first time; K8S_VERSION=v1.36.5 builds another Kubernetes)
	@$(CLUSTER_TOOL) install

.PHONY: cluster-up
cluster-up: cluster-parts image ## Start a cluster and install the chart: SIMULATE=<inventory>[,<inventory of node-b>] GATES=<feature gates> VALUES=<files>
	@test/up.sh "$(CLUSTER_DIR)" "$(SIMULATE)" "$(GATES)" $(addprefix --values ,$(VALUES))

.PHONY: cluster-down
cluster-down: cluster-tool ## Stop the cluster and remove every trace of it
	@$(CLUSTER_TOOL) down --dir "$(CLUSTER_DIR)"

##@ Checks

# Packages whose goroutines meet run with the race detector, which makes a test up to ten times
# slower. pkg/race_test.go finds a package that is missing here.
# The kubelet's calls meet each other, and all that the plugin looks at and publishes meanwhile.
RACE  = ./pkg/node/... ./pkg/claim ./pkg/claim/ledger ./pkg/cdi
# GPUs are read and changed side by side, and a call that hangs is left behind.
RACE += ./pkg/hardware/amd/... ./pkg/hardware ./pkg/hardware/mps ./pkg/hardware/nvidia/...
# Requests meet what follows the API server.
RACE += ./pkg/serve
# `make nightly` runs all packages with the race detector. These start goroutines, too. A fault of
# pages, commands and readers of figures takes no GPU from anybody. Simulated machines and
# pkg/partition are called by tests of RACE; tests of pkg/partition itself mostly crash it, step by step.
RACE_AT_NIGHT  = ./pkg/web/... ./pkg/usage ./cmd/kubectl-tranche ./cmd/tranche-web
RACE_AT_NIGHT += ./test/simulator/... ./pkg/hardware/kmod ./pkg/partition

# Their tests start clusters in their own process, and need the programs of Kubernetes.
LAB = ./test/lab ./test/e2e

# What only measures Tranche: their tests run in `make nightly`, before the measurements.
MEASURING = ./test/bench ./test/figures ./test/mutate ./test/packing/... ./test/scale

# Debugging information and symbols take half of the time to link, collecting garbage a tenth of the
# time to compile. `make verify` vets.
TEST = GOGC=400 $(GO) test -vet=off -ldflags=-s

.PHONY: test-unit
test-unit: compiler cluster-parts ## Run the tests that need no real cluster
	@$(MAKE) -j2 --no-print-directory test-race test-lab test-packages
	@$(MAKE) --no-print-directory test-modules MODULES=test/cluster WITH=-short

# Parts of test-unit, two at a time: more would only starve each other. Tests of a package wait more
# than they compute, so more of them run at once than there are cores. -count=1, because the go
# command keeps results by what tests read, and simulated machines read without end.
.PHONY: test-race test-packages test-lab
test-race:
	@HELM=$(HELM) $(TEST) -short -race -count=1 -p 2 -parallel 4 -timeout 60m $(RACE)

test-packages:
	@HELM=$(HELM) $(TEST) -short -p 2 -parallel 4 -timeout 60m $$(comm -23 <($(GO) list ./... | sort) <($(GO) list $(RACE) $(LAB) $(MEASURING) | sort))

test-lab: kubectl-tranche
	@HELM=$(HELM) KUBEBUILDER_ASSETS="$$($(CLUSTER_TOOL) path)" $(TEST) -short -count=1 -parallel 2 -timeout 60m $(LAB)

# The other Go modules: the cluster on this machine, and what reads the work of other projects: GitOps
# tools, autoscalers, alerts, releases. Not all of test/cluster: cmd/kubernetes would build
# Kubernetes.
MODULES = test/cluster test/autoscalers test/gitops test/promql release
.PHONY: test-modules
test-modules:
	@export HELM=$(HELM); for module in $(MODULES); do echo "module $$module …"; \
	  (cd $$module && $(TEST) $(WITH) $$($(GO) list ./... | grep -v /cmd/kubernetes)) || exit 1; done

.PHONY: test-browser
test-browser: ## Run the tests of the web page in Chromium, with axe-core, which npm fetches (installs chromium and npm, as root, if they are missing)
	@{ command -v chromium && command -v npm; } >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium npm >/dev/null; }
	@cd test/browser && TRANCHE_BROWSER=required $(TEST) -count=1 -timeout 30m .

.PHONY: test-e2e
test-e2e: compiler ## Run the end-to-end tests on real clusters (needs root; TESTS=<pattern> runs some)
	@test/e2e.sh '$(TESTS)'

.PHONY: test-e2e-night
test-e2e-night: compiler ## Run the end-to-end tests that take too long for each change (needs root)
	@E2E_NIGHT=1 test/e2e.sh

# Those of MIG. Other tests use the driver of the inventory, 580.
E2E_MIG = ^(TestTwoMIGPartitionsInOneContainer|TestReplicasOfPartitions|TestSevenPartitions|TestShareHalvesOfTwoNamespacesBesidePartitions|TestUsageOfPartitionsOfOneGPU|TestHardwareCommand|TestDemos/(mig|two-partitions|sharing-mig|profile-all-balanced))$$
.PHONY: test-e2e-drivers
test-e2e-drivers: compiler ## Run the end-to-end tests of MIG with the oldest and the newest library of NVIDIA's driver (needs root)
	@for driver in 535 615; do echo "driver $$driver …"; E2E_NVIDIA_DRIVER=$$driver test/e2e.sh '$(E2E_MIG)' || exit 1; done

# The same on other versions of Kubernetes: the newest patches that the module proxy serves. 1.38 follows when
# it serves all that 1.38 requires (test/cluster/kubernetes-1.38.md).
K8S_VERSIONS ?= v1.36.5 v1.37.2
E2E_VERSIONS = ^(TestKubeletRestart|TestAPIServerAway|TestDeviceHealthInThePodStatus|TestUpgradeAndRollback|TestUninstall|TestDemos/(admin-access|amd-partition|extended-gpu|first-available|mig|profile-all-balanced|sharing-half-gpu|sharing-memory|sharing-mps|translate-kai|two-partitions))$$
.PHONY: test-e2e-versions
test-e2e-versions: compiler ## Run the tests of test-lab and the same end-to-end tests on K8S_VERSIONS="v1.36.5 v1.37.2", and note in test/e2e/versions.txt what passed (needs root; builds each)
	@failed=; for version in $(K8S_VERSIONS); do echo "Kubernetes $$version …"; \
	  K8S_VERSION=$$version $(MAKE) --no-print-directory cluster-parts test-lab || failed+=" $$version in one process"; \
	  K8S_VERSION=$$version E2E_RECORD=test/e2e/versions.txt test/e2e.sh '$(E2E_VERSIONS)' || failed+=" $$version"; done; \
	  if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

# Each part runs even if others fail. .github/workflows/nightly.yml runs them side by side.
NIGHTLY = test-long test-e2e-night test-e2e-drivers test-e2e-versions race test-drivers test-clients test-browser test-release test-arm64 test-upgrade test-fips test-hardware-kit soak packing bench scale mutate
.PHONY: nightly
nightly: ## Run what takes too long for each change, and name the parts that failed (needs root; hours)
	@failed=; for part in $(NIGHTLY); do echo "== $$part"; $(MAKE) --no-print-directory $$part || failed+=" $$part"; done; \
	  if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

.PHONY: test-long
test-long: compiler cluster-parts kubectl-tranche ## Run all tests that need no real cluster, with whole matrices and random walks
	@HELM=$(HELM) KUBEBUILDER_ASSETS="$$($(CLUSTER_TOOL) path)" $(TEST) -count=1 -p 2 -parallel 4 -timeout 120m ./...
	@$(MAKE) --no-print-directory test-modules

.PHONY: race
race: compiler cluster-parts kubectl-tranche ## Run all tests that need no real cluster with the race detector; matrices and random walks are shorter
	@HELM=$(HELM) KUBEBUILDER_ASSETS="$$($(CLUSTER_TOOL) path)" $(TEST) -race -short -count=1 -p 4 -parallel 4 -timeout 120m ./...
	@$(MAKE) --no-print-directory test-modules WITH="-race -short"

# Those of pkg/node that create, find and destroy MIG partitions.
MIG_TESTS = ^Test(ForeignPartition|ReleaseOfForgotten|ComputeInstance|InUse|RunPrepares|ARequestWithTwo|ShareOfAPartition|PluginKilledDuringPrepare|PartitionRemoved|StaticProfile|DriverUpgrade)
# Those of the lab.
MIG_LAB = ^Test(FillTheNode|TwoMIGPartitionsInOneContainer|ReplicasOfPartitions|ForceDeletedPod|AStaticProfileByLabelAndBack|ShareHalvesOfTwoNamespacesBesidePartitions)$$
.PHONY: test-drivers
test-drivers: simulated-driver cluster-parts kubectl-tranche ## Run the tests of MIG with the simulated library of each driver: as a library file, in the process, and those of plugin and lab
	@for driver in $$(cd $(NVML) && ls -d [0-9]*); do echo "driver $$driver …"; export TRANCHE_TEST_DRIVER=$$driver; \
	  TRANCHE_TEST_NVML=$(CURDIR)/$(NVML)/$$driver $(TEST) -count=1 -parallel 1 ./pkg/hardware/nvidia ./pkg/hardware/nvidia/session && \
	  $(TEST) ./pkg/hardware/nvidia/... && \
	  $(TEST) -run '$(MIG_TESTS)' ./pkg/node && \
	  HELM=$(HELM) KUBEBUILDER_ASSETS="$$($(CLUSTER_TOOL) path)" $(TEST) -parallel 2 -run '$(MIG_LAB)' ./test/e2e || exit 1; done

.PHONY: test-clients
test-clients: compiler ## Run programs of others on simulated GPUs, and look for every NVML call in the real library of the oldest driver (fetches Debian packages; needs root)
	@test/clients/fetch.sh

.PHONY: test-release
test-release: release ## Build a release twice, and do what a new user does with it, on a new cluster (needs root)
	@test/reproducible.sh
	@test/release.sh

.PHONY: test-arm64
test-arm64: simulated-driver release-tool ## Start the programs for arm64 in QEMU, which it installs, with simulated GPUs (needs root)
	@$(MAKE) --no-print-directory build simulated-driver ARCH=arm64 BIN=build/release/linux-arm64 VERSION=$(RELEASE)
	@test/arm64.sh

.PHONY: test-upgrade
test-upgrade: compiler ## Upgrade from the previous release and downgrade to it while pods hold GPUs, on a new cluster (needs root)
	@test/upgrade.sh

.PHONY: test-fips
test-fips: cluster-parts ## Build with Go's certified FIPS 140-3 module, start each program, and run the tests with a cluster in one process
	@GOFIPS140=certified $(MAKE) --no-print-directory build BIN=build/fips
	@test/fips.sh build/fips
	@GOFIPS140=certified $(MAKE) --no-print-directory test-lab

N        ?= 120
SEED     ?= 0
PACKAGES ?= ./pkg/...
MUTATE   ?=
.PHONY: mutate
mutate: compiler cluster-parts kubectl-tranche ## Break N=120 random places of PACKAGES, chosen by SEED, one at a time: which tests notice? (hours; MUTATE=<flags>)
	@HELM=$(HELM) KUBEBUILDER_ASSETS="$$($(CLUSTER_TOOL) path)" $(GO) run ./test/mutate -n $(N) -seed $(SEED) $(MUTATE) $(PACKAGES)

SOAK ?= 10m
.PHONY: soak
soak: ## Kill controllers, plugins and kubelets at random while profiles change (needs root; SOAK=10m)
	@TRANCHE_SOAK=$(SOAK) E2E_CLUSTERS=1 test/e2e.sh TestSoak

.PHONY: verify
verify: compiler cluster-parts ## Check formatting, vet, generated files and the chart
	@test/verify.sh

BASE ?= origin/main
.PHONY: sign-off
sign-off: ## Look for the line Signed-off-by in each commit since BASE=origin/main
	@missing=$$(git log --no-merges --format='%h%x09%(trailers:key=Signed-off-by,valueonly,separator=%x2C)' $(BASE)..HEAD | awk -F '\t' '$$2 == "" {print $$1}'); \
	  [ -z "$$missing" ] || { echo "not signed off (git commit --signoff):" $$missing >&2; exit 1; }

# Of what is released.
GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.9.0
.PHONY: vulnerabilities
vulnerabilities: compiler ## Look for known vulnerabilities in what the programs call (reads vuln.go.dev)
	$(GO) run $(GOVULNCHECK) ./cmd/... ./test/simulator/cmd/... github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook
	cd release && $(GO) run $(GOVULNCHECK) ./...

.PHONY: bench
bench: build simulated-driver ## Measure the figures that the project holds itself to, each with its limit
	$(GO) run ./test/bench

.PHONY: scale
scale: image cluster-parts ## Measure scheduler CPU per pod, and switches, a thousand at once and one, against limits (needs root)
	@$(GO) run ./test/scale

PACKING ?=
.PHONY: packing
packing: ## Compare placement policies on 1,500 simulated nodes; as root, then also with the real scheduler (PACKING=<flags>, PACKING_REAL=<flags>, test/packing/README.md)
	@$(GO) run ./test/packing $(PACKING)
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) --no-print-directory packing-real; else echo "The part with the real scheduler needs root." >&2; fi

# Fills nodes, 4 minutes; replays take hours.
PACKING_REAL ?= -claims 0
.PHONY: packing-real
packing-real: cluster-parts
	@$(GO) run ./test/packing/real $(PACKING_REAL)

.PHONY: hardware-test
hardware-test: build ## Build bin/hardware-test: checks to copy to a machine with a real GPU
	$(GO) test -c $(SMALL),hardware -ldflags '-s -w $(LAZY)' -o bin/hardware-test ./test/hardware

KIT = build/hardware-kit
.PHONY: hardware-kit
hardware-kit: hardware-test image cluster-parts ## Pack build/hardware-kit.tar: bin/hardware-test with a Kubernetes of one node, and the product
	@rm -rf $(KIT) && mkdir -p $(KIT)
	@cp bin/hardware-test bin/nvidia-cdi-hook $(CLUSTER_TOOL) build/tranche.tar build/tranche.image $(KIT) && cp -r $(CHART) $(KIT)/chart
	@$(CLUSTER_TOOL) pack --out $(KIT)/cluster-parts.tar.xz
	@tar -C build -cf $(KIT).tar hardware-kit && du -h $(KIT).tar

.PHONY: test-hardware-kit
test-hardware-kit: hardware-kit ## Do what build/hardware-kit.tar is for, with simulated GPUs (needs root)
	@cp build/simulated-driver.tar build/simulated-driver.image $(KIT)
	@cd $(KIT) && ./hardware-test -test.v -test.run '^TestPods$$' -pods . -simulate h100x8

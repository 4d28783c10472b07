#!/usr/bin/env bash
# Fetches programs of others that read GPUs, from Debian, and runs them on simulated GPUs; and checks
# every NVML call against the real library of the oldest driver that is supported (Debian's
# libnvidia-ml1). The packages are unpacked in the user's cache; the machine's own list of sources
# and its packages stay as they are.
set -euo pipefail
packages=(libnvidia-ml1 python3-pynvml gpustat python3-blessed python3-psutil python3-wcwidth nvtop rocm-smi librocm-smi64-1)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tranche/clients
rm -rf "$cache/root"
mkdir -p "$cache"/{lists/partial,archives/partial,root}
cat >"$cache/sources.list" <<'LIST'
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main contrib non-free
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian-security bookworm-security main contrib non-free
LIST
: >"$cache/status"
apt=(-qq -o "Dir::Etc::SourceList=$cache/sources.list" -o Dir::Etc::SourceParts=/dev/null
  -o "Dir::State::Lists=$cache/lists" -o "Dir::State::status=$cache/status"
  -o "Dir::Cache=$cache" -o "Dir::Cache::archives=$cache/archives"
  -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o "APT::Sandbox::User=$(id -un)")
apt-get "${apt[@]}" update
cd "$cache/archives"
rm -f ./*.deb
apt-get "${apt[@]}" download "${packages[@]}"
for package in *.deb; do dpkg-deb -x "$package" "$cache/root"; done
ls -- *.deb
cd "$OLDPWD"
toolkit=github.com/NVIDIA/nvidia-container-toolkit
CGO_CFLAGS=-Wno-deprecated-declarations GOBIN=$cache/root/usr/bin go install "$toolkit/cmd/nvidia-ctk@$(go list -m -f '{{.Version}}' $toolkit)"
library=$(find "$cache/root" -type f -name 'libnvidia-ml.so.*' | sort -V | tail -n 1)
TRANCHE_NVML_LIBRARY=$library go test -count=1 -v -run '^TestLibraryHasEveryCall$' ./pkg/hardware/nvidia
TRANCHE_CLIENTS=$cache/root go test -count=1 -v ./test/clients

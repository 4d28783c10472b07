#!/usr/bin/env bash
# Starts the programs for arm64 on this machine, in QEMU's user mode, with the C library of the image: each
# answers, and the kubelet plugin serves a kubelet with the simulated NVIDIA library for arm64. It publishes
# eight GPUs, prepares and releases claims for partitions, and is started again. As root, after
# make build ARCH=arm64 (make test-arm64).
#
# What that does not show: containers, the kernel of such a machine, and MPS daemons. QEMU starts no program
# in namespaces of its own (linux-user/syscall.c: CLONE_INVALID_FORK_FLAGS).
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$PWD/build/release/linux-arm64
if [ "$(uname -m)" = aarch64 ]; then echo "LEFT OUT: this machine runs programs for arm64 by itself: make test does"; exit 0; fi
if ! command -v qemu-aarch64 >/dev/null; then
  install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends qemu-user >/dev/null; }
  install || { apt-get update -qq && install; }
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bin/release root --architecture arm64 --programs "$programs" --out "$work/root.tar"
mkdir "$work/root" "$work/run"
tar -C "$work/root" -xf "$work/root.tar"
cp "$programs"/{simulated-driver,kubectl-tranche} "$work/root/usr/bin"
for program in "$work"/root/usr/bin/*; do
  printf '#!/bin/sh\nexec qemu-aarch64 -L %s %s "$@"\n' "$work/root" "$program" >"$work/run/${program##*/}"
done
chmod +x "$work"/run/*

# says PROGRAM PATTERN ARGUMENTS: what the program prints has the pattern.
says() {
  local out
  out=$("$work/run/$1" "${@:3}" 2>&1) || true
  grep -q -- "$2" <<<"$out" || { printf '%s %s says: %s\n' "$1" "${*:3}" "$out" >&2; exit 1; }
  echo "$1: ok"
}
version=$(make --silent release-version)
says tranche-kubelet-plugin " $version$" --version
says tranche-controller " $version$" --version
says tranche-web " $version$" --version
says kubectl-tranche " $version linux/arm64$" version --client
says tranche-hook "read the container's state" </dev/null
says nvidia-cdi-hook 'NVIDIA CDI Hook' --version
says simulated-driver '--inventory' --help
says kubectl-tranche 'mig-1g-10gb' templates --inventory h100x8

go run ./test/bench -plugin "$work/run/tranche-kubelet-plugin" -hook "$programs/nvidia-cdi-hook" \
  -libraries "$programs/simulated-nvml" -only "Prepare + Unprepare of a MIG claim"

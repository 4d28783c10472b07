#!/usr/bin/env bash
# Makes sure that there is a C compiler: NVML is called through cgo.
# compiler.sh [amd64|arm64]: for programs of this architecture.
set -euo pipefail
host=$(go env GOHOSTARCH) arch=${1:-$(go env GOHOSTARCH)}
case $arch in
  amd64) gcc=x86_64-linux-gnu-gcc header=/usr/x86_64-linux-gnu/include/stdio.h packages=(gcc-x86-64-linux-gnu libc6-dev-amd64-cross) ;;
  arm64) gcc=aarch64-linux-gnu-gcc header=/usr/aarch64-linux-gnu/include/stdio.h packages=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross) ;;
  *) echo "Tranche is built for amd64 and arm64, not for $arch." >&2; exit 1 ;;
esac
if [ "$arch" = "$host" ]; then gcc=gcc header=/usr/include/stdio.h packages=(gcc libc6-dev); fi
if command -v "$gcc" >/dev/null && [ -e "$header" ]; then exit 0; fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "Tranche is built with a C compiler (for NVML). Install $gcc and the C library's headers (Debian: ${packages[*]})." >&2
  exit 1
fi
echo "Installing ${packages[*]} …"
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null; }
install || { apt-get update -qq && install; }

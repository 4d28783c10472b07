#!/usr/bin/env bash
# Makes sure that there is a C compiler: NVML is called through cgo.
set -euo pipefail
if command -v gcc >/dev/null && [ -e /usr/include/stdio.h ]; then exit 0; fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "Tranche is built with a C compiler (for NVML). Install gcc and the C library's headers (Debian: gcc libc6-dev)." >&2
  exit 1
fi
echo "Installing gcc and libc6-dev …"
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null; }
install || { apt-get update -qq && install; }

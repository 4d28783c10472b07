#!/usr/bin/env bash
# Checks every NVML call against the real library of the oldest driver that is supported: Debian's
# libnvidia-ml1, from the component non-free. It is fetched into the user's cache; the machine's
# own list of sources and its packages stay as they are.
set -euo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tranche/libnvidia-ml1
mkdir -p "$cache"/{lists/partial,archives/partial,root}
cat >"$cache/sources.list" <<'LIST'
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm non-free
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian-security bookworm-security non-free
LIST
: >"$cache/status"
apt=(-qq -o "Dir::Etc::SourceList=$cache/sources.list" -o Dir::Etc::SourceParts=/dev/null
  -o "Dir::State::Lists=$cache/lists" -o "Dir::State::status=$cache/status"
  -o "Dir::Cache=$cache" -o "Dir::Cache::archives=$cache/archives"
  -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o "APT::Sandbox::User=$(id -un)")
apt-get "${apt[@]}" update
cd "$cache/archives"
apt-get "${apt[@]}" download libnvidia-ml1
package=$(ls -t libnvidia-ml1_*.deb | head -n 1)
dpkg-deb -x "$package" "$cache/root"
library=$(find "$cache/root" -type f -name 'libnvidia-ml.so.*' | sort -V | tail -n 1)
cd "$OLDPWD"
echo "$package: $(basename "$library")"
TRANCHE_NVML_LIBRARY=$library go test -count=1 -v -run '^TestLibraryHasEveryCall$' ./pkg/hardware/nvidia

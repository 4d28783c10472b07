#!/usr/bin/env bash
# Builds the commit again, in another-folder and with an empty build cache, and compares programs and images
# with those of `make release`, byte for byte. For one architecture: minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
  echo "the working tree differs from its commit, which is what is built again: commit first" >&2
  exit 1
fi
arch=$(go env GOARCH) version=$(make --silent release-version)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet . "$work/another-folder"

# Writes what is compared to build/again: build FOLDER
build() {
  (cd "$1"
    programs=build/release/linux-$arch
    mkdir -p build/again
    for image in "" simulated-driver; do
      bin/release image --image "$image" --programs "$programs" --tag "example.com/tranche:$version" --out "build/again/image$image.tar"
    done
    find "$programs" build/again -type f -exec sha256sum {} + | sort -k 2)
}
build . >"$work/first"
(cd "$work/another-folder" && GOCACHE=$work/cache make --no-print-directory build simulated-driver release-tool \
  ARCH="$arch" BIN="build/release/linux-$arch" VERSION="$version" >/dev/null)
build "$work/another-folder" >"$work/second"
if ! diff "$work/first" "$work/second"; then
  echo "the second build differs: look for paths and times with \`go version -m\` and diffoscope" >&2
  exit 1
fi
wc -l <"$work/first" | xargs echo "the same when built again, files:"

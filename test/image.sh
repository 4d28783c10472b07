#!/usr/bin/env bash
# Writes the product's image to build/tranche.tar and its name to
# build/tranche.image. The tag is a digest of the programs, so a cluster never
# runs an older image under the same name.
set -euo pipefail
repository=$1
tag=dev-$(cat bin/{tranche-kubelet-plugin,tranche-simulator,tranche-controller,tranche-web,nvidia-cdi-hook,simulated-nvidia-tools,release} | sha256sum | cut -c1-12)
name=$repository:$tag
if [ -e build/tranche.tar ] && [ "$(cat build/tranche.image 2>/dev/null)" = "$name" ]; then exit 0; fi
rm -f build/tranche.image
bin/release image --tag "$name" --out build/tranche.tar
echo "$name" > build/tranche.image
echo "image $name is in build/tranche.tar"

#!/usr/bin/env bash
# Writes the product's image to build/tranche.tar and its name to
# build/tranche.image. The tag is a digest of the programs, so a cluster never
# runs an older image under the same name.
set -euo pipefail
repository=$1
tag=dev-$(cat bin/tranche-kubelet-plugin bin/tranche-simulator bin/tranche-controller bin/nvidia-cdi-hook bin/simulated-nvidia-tools | sha256sum | cut -c1-12)
name=$repository:$tag
if [ -e build/tranche.tar ] && [ "$(cat build/tranche.image 2>/dev/null)" = "$name" ]; then exit 0; fi
rm -f build/tranche.image
bin/image --tag "$name" --out build/tranche.tar \
  --entrypoint /usr/bin/tranche-kubelet-plugin --libs \
  --file bin/tranche-kubelet-plugin=/usr/bin/tranche-kubelet-plugin:0755 \
  --file bin/tranche-simulator=/usr/bin/tranche-simulator:0755 \
  --file bin/tranche-controller=/usr/bin/tranche-controller:0755 \
  --file bin/nvidia-cdi-hook=/usr/bin/nvidia-cdi-hook:0755 \
  --file bin/simulated-nvidia-tools=/usr/bin/simulated-nvidia-tools:0755
echo "$name" > build/tranche.image
echo "image $name is in build/tranche.tar"

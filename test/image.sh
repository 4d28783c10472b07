#!/usr/bin/env bash
# Writes an image to build/NAME.tar and its complete name to build/NAME.image: image.sh REPOSITORY
# [simulated-driver]. The tag is a digest of what is in it, so a cluster never runs an older image
# under the same name.
set -euo pipefail
repository=$1${2:+-$2} image=${2:-}
contents=(bin/{tranche-kubelet-plugin,tranche-controller,tranche-web,tranche-hook,nvidia-cdi-hook})
if [ -n "$image" ]; then contents=(bin/simulated-driver bin/simulated-nvml); fi
tag=dev-$(find "${contents[@]}" bin/release -type f | sort | xargs cat | sha256sum | cut -c1-12)
name=$repository:$tag out=build/${image:-tranche}
if [ -e "$out.tar" ] && [ "$(cat "$out.image" 2>/dev/null)" = "$name" ]; then exit 0; fi
rm -f "$out.image"
bin/release image --image "$image" --tag "$name" --out "$out.tar"
echo "$name" > "$out.image"
echo "image $name is in $out.tar"

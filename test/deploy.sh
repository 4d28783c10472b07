#!/usr/bin/env bash
# Installs or upgrades the chart in the cluster of up.sh with the images that
# `make image` wrote: deploy.sh FOLDER [helm arguments]. SOURCES is another folder of the repository.
set -euo pipefail
dir=$1
shift
sources=${SOURCES:-.}
image=$(cat "$sources/build/tranche.image") driver=$(cat "$sources/build/simulated-driver.image")
for tar in "$sources"/build/{tranche,simulated-driver}.tar; do bin/cluster load --dir "$dir" --tar "$tar"; done
export KUBECONFIG=$dir/kubeconfig
PATH=$(bin/cluster path):$PATH
echo "installing the chart …"
helm upgrade --install tranche "$sources/deployments/helm/tranche" \
  --namespace tranche-system --create-namespace --wait --timeout 8m \
  --set image.repository="${image%:*}" --set image.tag="${image##*:}" --set simulate.image.tag="${driver##*:}" \
  "$@" >/dev/null

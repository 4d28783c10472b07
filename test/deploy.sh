#!/usr/bin/env bash
# Installs or upgrades the chart in the cluster of up.sh with the images that
# `make image` wrote: deploy.sh FOLDER [helm arguments]
set -euo pipefail
dir=$1
shift
image=$(cat build/tranche.image) driver=$(cat build/simulated-driver.image)
for tar in build/{tranche,simulated-driver}.tar; do bin/cluster load --dir "$dir" --tar $tar; done
export KUBECONFIG=$dir/kubeconfig
PATH=$(bin/cluster path):$PATH
echo "installing the chart …"
helm upgrade --install tranche deployments/helm/tranche \
  --namespace tranche-system --create-namespace --wait --timeout 8m \
  --set image.repository="${image%:*}" --set image.tag="${image##*:}" --set simulate.image.tag="${driver##*:}" \
  "$@" >/dev/null

#!/usr/bin/env bash
# Installs or upgrades the chart in the cluster of up.sh with the image that
# `make image` wrote: deploy.sh FOLDER [helm arguments]
set -euo pipefail
dir=$1
shift
image=$(cat build/tranche.image)
bin/cluster load --dir "$dir" --tar build/tranche.tar
export KUBECONFIG=$dir/kubeconfig
PATH=$(bin/cluster path):$PATH
echo "installing the chart …"
helm upgrade --install tranche deployments/helm/tranche \
  --namespace tranche-system --create-namespace --wait --timeout 8m \
  --set image.repository="${image%:*}" --set image.tag="${image##*:}" \
  "$@" >/dev/null

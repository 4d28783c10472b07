#!/usr/bin/env bash
# Writes the ResourceSlices of each instance type and inventory that Tranche knows to FOLDER/NAME.yaml.
set -euo pipefail
folder=${1:?usage: test/autoscalers/templates.sh FOLDER}
mkdir -p "$folder"
for name in $(kubectl-tranche __complete templates --inventory "" 2>/dev/null | grep -v '^:'); do
  kubectl-tranche templates --inventory "$name" >"$folder/$name.yaml"
done

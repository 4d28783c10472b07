#!/usr/bin/env bash
# Starts the programs of a folder, which were built with GOFIPS140: each says so, and checks Go's module of
# cryptography when it starts. fips.sh FOLDER
set -euo pipefail
for program in tranche-kubelet-plugin tranche-controller tranche-web tranche-hook nvidia-cdi-hook kubectl-tranche; do
  settings=$(go version -m "$1/$program")
  for want in GOFIPS140=v fips140=on; do
    grep -q "$want" <<<"$settings" || { echo "$program was not built with GOFIPS140: it has no $want" >&2; exit 1; }
  done
done
for program in tranche-kubelet-plugin tranche-controller tranche-web nvidia-cdi-hook; do "$1/$program" --version; done
"$1/kubectl-tranche" --help >/dev/null
echo "programs with GOFIPS140 start"

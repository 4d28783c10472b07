#!/usr/bin/env bash
# Starts a cluster with one node for each simulated inventory and installs the
# chart: up.sh FOLDER INVENTORY[,INVENTORY[,INVENTORY]] FEATURE-GATES [helm arguments]
# RUNTIME_CONFIG switches versions of APIs on: GROUP/VERSION=true.
set -euo pipefail
dir=$1 inventories=$2 gates=$3
shift 3

names=(node-a node-b node-c)
IFS=, read -ra wanted <<< "$inventories"
if [ "${#wanted[@]}" -lt 1 ] || [ "${#wanted[@]}" -gt "${#names[@]}" ]; then
  echo "SIMULATE=$inventories: name one to ${#names[@]} inventories, one for each node" >&2
  exit 1
fi
nodes=$(IFS=,; echo "${names[*]:0:${#wanted[@]}}")
bin/cluster up --dir "$dir" --nodes "$nodes" ${gates:+--gates "$gates"} ${RUNTIME_CONFIG:+--runtime-config "$RUNTIME_CONFIG"}
simulate=()
for i in "${!wanted[@]}"; do
  simulate+=(--set "simulate.nodes.${names[i]}=${wanted[i]}")
done
test/deploy.sh "$dir" "${simulate[@]}" "$@"

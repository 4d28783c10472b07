#!/usr/bin/env bash
# Checks what a reviewer should not have to: lint, formatting, modules, the chart.
set -euo pipefail
linter=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# Without the -trimpath of the Makefile: with it, the linter reads files of other clones that
# share the build cache.
lint() { GOFLAGS='' go run "$linter" run "$@"; }

echo "modules …"
go mod tidy -diff
(cd test/cluster && go mod tidy -diff)
(cd test/autoscalers && go mod tidy -diff)
(cd test/gitops && go mod tidy -diff)
(cd test/promql && go mod tidy -diff)
(cd test/browser && go mod tidy -diff)
(cd release && go mod tidy -diff)
echo "generated files …"
before=$(cat api/v1beta1/generated.sha256)
make --no-print-directory generate
[ "$before" = "$(cat api/v1beta1/generated.sha256)" ] || { echo "they were not of these types; make generate has rewritten them: commit them" >&2; exit 1; }
echo "lint (the first run builds the linter) …"
lint ./...
# Not ./...: cmd/kubernetes would build Kubernetes a second time.
(cd test/cluster && lint --config ../../.golangci.yaml ./internal/... ./cmd/cluster/... ./cmd/pause/...)
(cd test/autoscalers && lint --config ../../.golangci.yaml ./...)
(cd test/gitops && lint --config ../../.golangci.yaml ./...)
(cd test/promql && lint --config ../../.golangci.yaml ./...)
(cd test/browser && lint --config ../../.golangci.yaml ./...)
(cd release && lint --config ../.golangci.yaml ./...)
echo "shell …"
for script in test/*.sh test/*/*.sh demo/*.sh deployments/*.sh .ci/run; do bash -n "$script"; done
echo "workflows …"
go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
echo "chart …"
HELM=$(bin/cluster path)/helm
"$HELM" lint --quiet --strict deployments/helm/tranche
HELM=$HELM go test -count=1 ./deployments/...
echo "all is well"

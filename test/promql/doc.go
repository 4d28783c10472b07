// Package promql runs the queries of the chart in Prometheus's engine: its recording rules, its
// alerts and those of the dashboard, on scrapes of plugins and a controller that are recorded in
// testdata. It is a Go module of its own, because Prometheus needs many others.
package promql

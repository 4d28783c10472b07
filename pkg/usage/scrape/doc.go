// Package scrape reads the metrics of the kubelet plugins through the API server, with the rights
// of whoever asks.
//
// Imports: pkg/cluster, pkg/usage.
package scrape

// Package scrape reads the metrics of the kubelet plugins: through the API server with the rights
// of whoever asks, or from the pods themselves.
package scrape

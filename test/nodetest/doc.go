// Package nodetest has fixtures for tests of the kubelet plugin: an API server with one node,
// GPUs, claims, and a /proc. Only tests import it.
package nodetest

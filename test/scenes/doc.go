// Package scenes has clusters in memory, for the tests of what kubectl tranche shows.
//
// It may import the Kubernetes API, pkg/cluster, pkg/gpu, pkg/hardware/xcp, pkg/publish
// and test/gpunodes.
package scenes

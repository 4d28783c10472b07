// Package usage measures how much the node's GPUs are used, in the background, and reports it as
// metrics of the pods that hold them. A scrape never waits for a GPU.
//
// sampler.go measures at intervals; tenure.go tells who held what when, so that nothing that was
// measured of one claim is reported of another; collector.go reports; definitions.go has the
// metrics; containers.go asks the kubelet which pods and containers use claims.
package usage

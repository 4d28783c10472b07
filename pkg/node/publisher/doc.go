// Package publisher keeps the ResourceSlices of the kubelet plugin's node.
//
// publisher.go decides what is published of each GPU and with which taints, order.go has the
// taints that a switch to another profile orders. handover.go gives changed slices to the
// kubeletplugin helper one after the other, stored.go reads what the API server has.
// features.go and restrict.go are for a cluster that keeps less than is published.
//
// Imports: api/v1alpha1, pkg/gpu, pkg/node/inventory, pkg/node/nodewatch,
// pkg/node/telemetry, pkg/profile, pkg/publish, pkg/text.
package publisher

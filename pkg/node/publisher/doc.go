// Package publisher keeps the ResourceSlices of the kubelet plugin's node.
//
// publisher.go decides what is published of each GPU, taints.go with which taints. switchtaints.go
// has the taints for a switch to another profile, owners.go the other systems that serve the
// GPUs. handover.go passes changed slices to the kubeletplugin helper one by one, stored.go
// reads the published ones. features.go and restrict.go are for clusters whose API server
// drops fields.
package publisher

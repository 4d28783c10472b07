// Package nodes has what the tests of all autoscalers need: the ResourceSlices of nodes, as
// `kubectl tranche templates` prints them, the chart's DeviceClasses, and the allocator of
// kube-scheduler.
//
// This module imports nothing of the product's module: a new version of a dependency there
// would have to be entered here, too.
package nodes

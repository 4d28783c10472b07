// Command scale measures what our ResourceSlices cost the scheduler and what the
// controller costs, on a real API server, and prints a line for each figure: what, measured, limit, what was seen, and as the last word "ok"
// or "over". It ends with status 1 if any is over.
//
// Clusters are started for it (test/cluster), one after the other except for the first
// two:
//
//   - Two clusters at once, one with our ResourceSlices on a hundred nodes and one with
//     those of NVIDIA's DRA driver. Each has an API server, etcd and the real scheduler.
//   - The fleet: API server and etcd alone, with the chart, a thousand nodes that are
//     objects only, and the controller's program with the flags and rights that the
//     chart gives it. All nodes are labelled at once. The command plays their plugins:
//     it answers in each GPUNode's status and publishes slices. No controller manager
//     runs, which would taint nodes without a kubelet.
//   - The same with plans: five thousand nodes, and for comparison a tenth of them, which
//     forty PartitionPlans switch, while the controller is restarted and a plan is paused.
//   - Two nodes with the real plugin, on hardware like that of the inventories h100x8
//     and mi300x8 that takes no time to change: all the time that a switch takes there
//     is Tranche's own.
//
// It imports the API's types and client, the marks and states of pkg/controller, the
// digest of pkg/publish, pkg/sleep, the inventories, and test/controlplane,
// test/figures, test/nodes and test/allocator.
package main

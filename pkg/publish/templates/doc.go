// Package templates returns the ResourceSlices that a node will publish, before the node
// exists. Autoscalers need them to decide whether a new node would satisfy a claim:
//
//	inventory, err := models.LoadInventory("h100x8")
//	...
//	slices, err := templates.Slices(templates.Node{Name: "node", Inventory: inventory})
//
// They come from the code that the kubelet plugin publishes with, and a test compares them
// with what the plugin publishes on simulated machines. `kubectl tranche templates` prints
// them.
//
// A template cannot know the UUIDs of GPUs that do not exist yet. It has made-up ones,
// another for each GPU, because claims compare them: partitions of the same GPU, or GPUs
// that differ. PCI addresses, PCIe roots and NUMA nodes are those of the inventory. Device
// names and counter sets contain the PCI address.
package templates

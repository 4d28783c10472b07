// Package preview computes what a node's plugin would do, without the plugin, from the tables of
// GPU models.
//
// slices.go returns the ResourceSlices that a node will publish before the node exists.
// Autoscalers need them to decide whether a new node would satisfy a claim:
//
//	inventory, err := models.LoadInventory("h100x8")
//	...
//	slices, err := preview.Slices(preview.Node{Name: "node", Inventory: inventory})
//
// They come from the code that the kubelet plugin publishes with, and a test compares them with
// what the plugin publishes on simulated machines. UUIDs are made up, a different one for each GPU,
// because claims compare them. PCI addresses, PCIe roots and NUMA nodes are those of the inventory.
// Device names and counter sets contain the PCI address.
//
// release.go returns the devices that claims would have to release for a profile: it builds the
// GPUs from the node's GPUNode and plans as the plugin does. GPUs whose product is not in the tables
// are listed as unknown.
//
// Everything is pure.
package preview

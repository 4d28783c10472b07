// Package inventory knows machines on paper: an inventory file (inventory.go,
// resolve.go, inventories/) names cards of the tables (table.go, table.yaml for
// NVIDIA's, amdtable.go, amd.yaml for AMD's), and pci.go gives them addresses.
// [Inventory.Cards] tells what the drivers would say about such a machine
// (cards.go, amdcards.go), so that a program without hardware can show what its
// node would publish; pkg/hardware/simulate brings it to life.
//
// It is pure but for the inventory files that it is asked to read. It imports
// pkg/gpu, pkg/hardware/mig and pkg/hardware/xcp, and no NVML.
package inventory

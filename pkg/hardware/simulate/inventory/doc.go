// Package inventory knows machines on paper: an inventory file (inventory.go,
// inventories/) names cards of the table (table.go, table.yaml), and pci.go
// gives them addresses. [Inventory.Cards] tells what the driver would say about
// such a machine (cards.go), so that a program without hardware can show what
// its node would publish; pkg/hardware/simulate brings it to life.
//
// It is pure but for the inventory files that it is asked to read. It imports
// pkg/gpu and pkg/hardware/mig, and no NVML.
package inventory

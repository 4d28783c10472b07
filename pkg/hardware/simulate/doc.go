// Package simulate stands in for NVIDIA's driver: [NVML] answers the calls of
// go-nvml's nvml.Interface from an inventory file, with the limits, errors,
// delays and files of the real thing, so that everything above NVML runs
// unchanged on a machine without a card.
//
// It imports nothing of ours. The way through it: an inventory (inventory.go)
// names cards of the table (table.go, table.yaml); [New] lays out the files
// that containers and libraries look for (files.go, capabilities.go, pci.go)
// and returns the library (nvml.go, device.go, …). What changes at run time is
// in state.json below [Options.Root] (state.go): it survives the process, two
// processes may share it, and [Reboot] loses it as a machine would. Faults and
// clients of the cards are set through faults.yaml (faults.go).
//
// Methods of the NVML interfaces that are not simulated panic with their name:
// implement them here when something starts to need them.
package simulate

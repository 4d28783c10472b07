// Package models describes GPU models and machines on paper. The tables list the
// models (nvidiatable.go with nvidia.yaml, amdtable.go with amd.yaml). An
// inventory (inventory.go, resolve.go, inventories/) names the GPUs of a machine,
// instancetypes.go those of the instance types of clouds, and pci.go gives them
// addresses. [Inventory.Hardware] returns what the drivers of
// such a machine would report (gpus.go, amdgpus.go). pkg/publish/preview
// turns it into ResourceSlices; the packages in test/simulator bring it to life.
//
// The package is pure except for reading inventory files.
package models

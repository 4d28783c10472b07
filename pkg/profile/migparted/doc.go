// Package migparted converts configuration files of NVIDIA's mig-parted (version v1), which the MIG
// manager of the GPU operator reads, to PartitionProfiles.
//
// The keys and their meaning are those of mig-parted 0.15: api/spec/v1 for the file,
// cmd/nvidia-mig-parted/assert and apply for the order of entries. There, entries are performed one
// after the other, so the last one holds; here, the first rule holds. The order is reversed.
//
// What mig-parted misunderstands without a word is an error: device filters that cannot be parsed,
// and MIG modes that contradict each other on one GPU.
package migparted

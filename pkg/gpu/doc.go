// Package gpu is the vocabulary of all other packages: GPUs, the ways to partition them,
// what each partition takes from its GPU, and how all of it is named.
//
// It is pure: no files, no hardware, no API server.
//
// The terms of this code base, each with one meaning:
//
//   - GPU: one physical GPU, identified by its PCI address.
//   - placement: one way to use a GPU: the whole GPU, or a profile at a position.
//   - partition: a part of a GPU that exists in the hardware: a MIG instance or an AMD
//     compute partition. Static partitions are created by a PartitionProfile, dynamic ones
//     by claims.
//   - foreign partition: a partition that Tranche did not create.
//   - profile: of a partition, the vendor's name of its size (1g.10gb, cpx); of a node, a
//     PartitionProfile.
//   - mode: a setting of a whole GPU: MIG mode on NVIDIA, compute and memory mode on AMD.
//   - share: a device that several claims hold at once, by memory or by fraction.
//   - device: what is published in a ResourceSlice: a placement or a share.
//   - counter: an amount that a GPU has and its devices consume. Devices whose counters fit
//     together can exist together.
//   - claim: a ResourceClaim. It is allocated by the scheduler, prepared and released by the
//     plugin. A claim holds its devices from Prepare to Unprepare.
//   - holder: a claim that holds a device, or a process that uses a GPU.
//   - ledger: the plugin's records of the claims that hold devices.
//   - layout: how a GPU is partitioned: its modes, the profiles it offers, its static
//     partitions.
//   - desired: what a profile says of a node or GPU. Applied: what was last reached and
//     verified.
//   - switch: the change of a node from the applied to the desired profile, by the controller.
//   - plan: what a switch has to change on a node.
//   - task: the plugin's answer to a state of a switch.
//   - drain: to evict the pods that hold devices which a switch changes.
//   - withhold: not to publish a device that should be tainted, because the API server drops
//     device taints.
//   - restore: to reapply the applied profile after a reboot or a driver reload.
//   - owner: another system that serves a GPU, so that Tranche does not.
//   - obstacle: what keeps a GPU from changing its mode, such as a process.
//   - lost: a GPU that does not answer.
package gpu

// Package nvdriver stands in for NVIDIA's driver: [NVML] answers the calls of
// go-nvml's nvml.Interface from an inventory file, with the limits, errors,
// delays and files of the real thing, so that everything above NVML runs
// unchanged on a machine without a GPU.
//
// [New] starts the machine (machine.go), has its files written (nvfiles) and returns the
// library (nvml.go, device.go, mig.go, …). allocate.go decides which partitions can exist
// together. What changes at run time is in state.json below [Options.Root] (nvstate): it
// survives the process, several processes may share it, and [Reboot] resets it as a
// machine would.
//
// Faults, clients of the GPUs and XID events are set through
// <Root>/faults.yaml at any time, by hand or with [SetFaults] (faults.go):
//
//	calls:
//	- {call: CreateComputeInstance, gpu: "0000:1b:00.0", error: INSUFFICIENT_RESOURCES, times: 2}
//	- {call: GpuInstanceDestroy, gpu: "*", delay: 5s}
//	processes: [{gpu: "0000:1b:00.0", gpuInstance: 7, pid: 4242, name: python, compute: 60, memoryMiB: 4096}]
//	load: [{gpu: "*", compute: 50, memory: 30, wave: true}]
//	lost: ["0000:43:00.0"]
//	xids: [{gpu: "0000:52:00.0", xid: 79}]
//	resets: [{gpu: "0000:52:00.0", refused: true, times: 1}]
//	recovery: [{gpu: "0000:52:00.0", action: reset}]
//	amd: … see amdgpu
//
// Methods of the NVML interfaces that are not simulated panic with their name:
// implement them here when something starts to need them.
package nvdriver

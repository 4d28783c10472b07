// Package amdgpu simulates the kernel of a machine with AMD GPUs: [Kernel] has the files of
// amdgpu and KFD that pkg/hardware/amd reads and writes, and reacts to writes as the driver
// does, with its limits, errors and delays.
//
// [New] starts the machine (kernel.go) and makes its device nodes (nodes.go). What changes at
// run time is in amdgpu.json below [Options.Root] (state.go): it survives the process,
// several processes may share it, and [Reboot] resets it as a machine would (machine.go).
// The tree of files follows from it and from the faults (tree.go, gpufiles.go, topology.go,
// processes.go); a write (write.go) changes the state. [Kernel.Modprobe] (driver.go) unloads
// and loads the driver, with the output of the real program.
//
// [Kernel.Groups] has the limits of the GPUs' memory by control group (groups.go).
//
// Faults and processes are set through <Root>/faults.yaml at any time, by hand
// or with [SetFaults] (faults.go), beside those of test/simulator/nvdriver:
//
//	amd:
//	  writes:
//	  - {gpu: "0000:05:00.0", file: current_compute_partition, error: EBUSY, times: 2}
//	  - {gpu: "*", file: current_compute_partition, hang: after}
//	  processes: [{pid: 4242, name: python3, gpus: ["0000:05:00.0"], compute: 60, memoryMiB: 4096}]
//	  nodes: [{gpu: "0000:26:00.0", partitions: [7], missing: kfd}]
//	  resetting: ["0000:46:00.0"]
//	  lost: ["0000:65:00.0"]
//	  ras: [{gpu: "0000:85:00.0", block: umc, uncorrectable: 1}]
//	  memoryModes: [{gpu: "*", mode: NPS4}]
//	  memoryModeLost: true
//	  holders: [amdgpu_peer]
//	  driver:
//	  - {step: unload, error: in use, times: 1}
//	  - {step: load, error: no device, times: 2}
//	  - {step: load, delay: 20s, missing: ["0000:26:00.0"], times: 1}
//	  - {step: load, memoryModeLost: ["*"], times: 1}
package amdgpu

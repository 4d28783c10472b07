package nvdriver

import (
	"strconv"
	"strings"
)

// library is what depends on the version of NVML's library: it answers INVALID_ARGUMENT to a
// number from its own count on (nvml.h, nvmlDeviceGetGpuInstanceProfileInfo), whatever the
// header that a program was built with.
type library struct {
	// branch is the first branch of the driver with this library.
	branch int
	// gpuProfiles and computeProfiles are the header's NVML_GPU_INSTANCE_PROFILE_COUNT and
	// NVML_COMPUTE_INSTANCE_PROFILE_COUNT.
	gpuProfiles, computeProfiles int
}

// libraries are the versions, in order. Sources: nvml.h in the Go module
// github.com/NVIDIA/go-nvml, whose versions are named after CUDA releases (v0.12.4-0 is CUDA
// 12.4), and the driver that each release of CUDA came with (its release notes, table "CUDA
// Toolkit and Corresponding Driver Versions"). For CUDA 12.2 and 12.8 there is no such module:
// they have what the header before them had, the least that they can know. Of 580 the GPU
// profiles were also read on an H200.
var libraries = []library{
	{branch: 0, gpuProfiles: 10, computeProfiles: 8},   // 525: v0.12.0; 535 (CUDA 12.2)
	{branch: 550, gpuProfiles: 10, computeProfiles: 8}, // v0.12.4; 570 (CUDA 12.8)
	{branch: 575, gpuProfiles: 17, computeProfiles: 8}, // v0.12.9
	{branch: 580, gpuProfiles: 17, computeProfiles: 8}, // v0.13.0; 590: v0.13.1
	{branch: 595, gpuProfiles: 18, computeProfiles: 8}, // v0.13.2
	{branch: 610, gpuProfiles: 18, computeProfiles: 9}, // v0.13.3, v0.13.4
}

// libraryOf returns the library of a driver version such as 580.159.04.
func libraryOf(driverVersion string) library {
	text, _, _ := strings.Cut(driverVersion, ".")
	branch, _ := strconv.Atoi(text) // models.LoadInventory checks it
	found := libraries[0]
	for _, l := range libraries {
		if l.branch <= branch {
			found = l
		}
	}
	return found
}

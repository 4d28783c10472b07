package nvdriver

import (
	"hash/fnv"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// library is what depends on the version of NVML's library: it answers INVALID_ARGUMENT to a
// number from its own count on (nvml.h, nvmlDeviceGetGpuInstanceProfileInfo), whatever the
// header that a program was built with.
type library struct {
	// branch is the first one with this library.
	branch int
	// gpuProfiles and computeProfiles are the header's NVML_GPU_INSTANCE_PROFILE_COUNT and
	// NVML_COMPUTE_INSTANCE_PROFILE_COUNT.
	gpuProfiles, computeProfiles int
	// newProfiles: the library has version 3 of nvmlGpuInstanceProfileInfo_t.
	newProfiles bool
	// clocksEvents: it has nvmlDeviceGetCurrentClocksEventReasons.
	clocksEvents bool
	// resetless: it knows the field NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED.
	resetless bool
	// memoryLimits: it has nvmlDeviceSetMemoryLimits_v1.
	memoryLimits bool
}

// libraries are the versions, in order. Sources: nvml.h in the Go module
// github.com/NVIDIA/go-nvml, whose versions are named after CUDA releases (v0.12.4-0 is CUDA
// 12.4), and the driver that each release of CUDA came with (its release notes, table "CUDA
// Toolkit and Corresponding Driver Versions"). For CUDA 12.2 and 12.8 there is no such module:
// they have what the header before them had, the least that they can know, and of 535 the
// functions that `make test-clients` finds in the library itself. Of 580 the profiles of GPU
// instances were also read on an H200.
var libraries = []library{
	{branch: 525, gpuProfiles: 10, computeProfiles: 8},                                                                             // v0.12.0
	{branch: 535, gpuProfiles: 10, computeProfiles: 8, clocksEvents: true},                                                         // CUDA 12.2
	{branch: 550, gpuProfiles: 10, computeProfiles: 8, clocksEvents: true, newProfiles: true, resetless: true},                     // v0.12.4
	{branch: 575, gpuProfiles: 17, computeProfiles: 8, clocksEvents: true, newProfiles: true, resetless: true},                     // v0.12.9 to v0.13.1 (590)
	{branch: 595, gpuProfiles: 18, computeProfiles: 8, clocksEvents: true, newProfiles: true, resetless: true},                     // v0.13.2
	{branch: 610, gpuProfiles: 18, computeProfiles: 9, clocksEvents: true, newProfiles: true, resetless: true},                     // v0.13.3
	{branch: 615, gpuProfiles: 18, computeProfiles: 9, clocksEvents: true, newProfiles: true, resetless: true, memoryLimits: true}, // v0.13.4
}

// firstForBlackwell is the first branch that knows the profiles of its GPUs (+gfx, -me).
const firstForBlackwell = 575

// libraryOf returns the library of a driver version such as 580.159.04, or of the first driver
// for the GPUs if that is newer.
func libraryOf(driverVersion string, gpus []models.GPU) library {
	branch := branchOf(driverVersion)
	if slices.ContainsFunc(gpus, func(g models.GPU) bool { return g.Model.Architecture == "Blackwell" }) {
		branch = max(branch, firstForBlackwell)
	}
	found := libraries[0]
	for _, l := range libraries {
		if l.branch <= branch {
			found = l
		}
	}
	return found
}

// branchOf is the first part of a driver's version.
func branchOf(driverVersion string) int {
	text, _, _ := strings.Cut(driverVersion, ".")
	branch, _ := strconv.Atoi(text) // models.ParseInventory checks it
	return branch
}

// LibraryForTest is Options.Library for a test: by its name one of the oldest branch that is
// supported, the one that most people have, and the newest, so that tests meet all of them. The
// environment variable TRANCHE_TEST_DRIVER chooses one for all tests (535, 580, 610).
func LibraryForTest(test string) string {
	if chosen := os.Getenv("TRANCHE_TEST_DRIVER"); chosen != "" {
		return chosen
	}
	hash := fnv.New32()
	_, _ = hash.Write([]byte(test))
	branches := []string{"535", "580", "610"}
	return branches[int(hash.Sum32())%len(branches)]
}

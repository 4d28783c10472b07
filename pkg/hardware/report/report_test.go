package report

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// gb is so many GiB, in bytes.
func gb(n float64) uint64 { return uint64(n * (1 << 30)) }

// nvidiaReport is a GPU that is cut by MIG, with something of everything.
func nvidiaReport() Report {
	return Report{
		Drivers: []Driver{{Vendor: gpu.NVIDIA, Version: "580.159.04", CUDAVersion: "13.0"}},
		GPUs: []GPU{{
			Name: "gpu-0000-1b-00-0", Vendor: gpu.NVIDIA, PCIAddress: "0000:1b:00.0", ID: "NVML index 0", DeviceNode: "/dev/nvidia0",
			UUID: "GPU-1", ProductName: "NVIDIA H100 80GB HBM3", MIG: &Switch{On: true},
			Memory: &Memory{Total: gb(79.6), Used: new(gb(0.5)), Reserved: gb(0.5)},
			Power:  &Power{Draw: 70000, Limit: 700000}, Temperature: new(uint32(34)), Utilization: &Utilization{Compute: 3},
			Persistence: new(true), ComputeMode: "default",
			ECC: &ECC{Switch: &Switch{On: true, Pending: true}, Uncorrected: new(uint64(0)), RemapFailed: true},
			Partitions: []Partition{
				{Name: "gpu-0000-1b-00-0-mig-3g-40gb-0", Type: gpu.TypeMIG, ID: "GI 1", Profile: "3g.40gb", Size: 4, Memory: &Memory{Total: gb(39.5), Used: new(gb(0.5))}, UUIDs: []string{"MIG-1", "MIG-2"}, Note: "claim team/a, pod a-0"},
				{Name: "gpu-0000-1b-00-0-mig-1g-10gb-6", Type: gpu.TypeMIG, ID: "GI 5", Profile: "1g.10gb", Start: 6, Size: 1, HalfMade: "no compute instance"},
			},
			Processes: []Process{{PID: 4242, Name: "python", Memory: new(gb(0.5)), Partition: "GI 1"}},
			Errors:    []string{"GPU 0000:1b:00.0: DeviceGetFanSpeed: ERROR_UNKNOWN"},
		}},
	}
}

// amdReport is one GPU in a mode that nothing has asked for yet, and one that
// does not answer.
func amdReport() Report {
	return Report{
		Drivers: []Driver{{Vendor: gpu.AMD, Version: "6.16.13"}},
		GPUs: []GPU{
			{
				Name: "gpu-0000-05-00-0", Vendor: gpu.AMD, PCIAddress: "0000:05:00.0", ID: "card1", DeviceNode: "/dev/dri/renderD128",
				UUID: "e3a9", ProductName: "AMD Instinct MI300X", Memory: &Memory{Total: gb(192), Used: new(gb(0.3))},
				ComputePartition: "DPX", ComputePartitions: []string{"SPX", "DPX", "QPX", "CPX"}, MemoryPartition: "NPS1",
				ECC: &ECC{Uncorrected: new(uint64(2))},
				Partitions: []Partition{
					{Name: "gpu-0000-05-00-0-dpx-0", Type: gpu.TypeXCP, ID: "KFD node 2", Profile: "dpx", Memory: &Memory{Total: gb(96)}, DeviceNode: "/dev/dri/renderD128", Note: "claim team/b, pod b-0"},
					{Name: "gpu-0000-05-00-0-dpx-1", Type: gpu.TypeXCP, Profile: "dpx", Start: 1, HalfMade: "no KFD node"},
				},
				Processes: []Process{{PID: 17, Name: "amd-metrics-exporter", Partition: "dpx-0"}, {PID: 18}},
				Obstacles: []string{"not to be had now: cpx-0, cpx-1: process 17 (amd-metrics-exporter) keeps the GPU from being switched"},
			},
			{Vendor: gpu.AMD, ID: "card2", Unhealthy: "it does not answer"},
		},
	}
}

func golden(t *testing.T, name string, r Report) {
	t.Helper()
	var b strings.Builder
	require.NoError(t, r.WriteText(&b))
	for line := range strings.Lines(b.String()) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
	}
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "go test -update makes it")
	assert.Equal(t, string(want), b.String())
}

func TestTextOfBothVendors(t *testing.T) {
	r, err := Merge(Source{Vendor: gpu.NVIDIA, Report: nvidiaReport()}, Source{Vendor: gpu.AMD, Report: amdReport()})
	require.NoError(t, err)
	golden(t, "both.txt", r)
}

// One vendor's driver that fails hides nothing of the other's GPUs.
func TestOneDriverFails(t *testing.T) {
	broken := errors.New("GPU 0000:05:00.0: amdgpu does not answer")
	r, err := Merge(Source{Vendor: gpu.NVIDIA, Report: nvidiaReport()}, Source{Vendor: gpu.AMD, Err: broken})
	require.NoError(t, err)
	golden(t, "one-fails.txt", r)

	_, err = Merge(Source{Vendor: gpu.AMD, Err: broken})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "AMD: GPU 0000:05:00.0")
}

func TestJSON(t *testing.T) {
	r, err := Merge(Source{Report: nvidiaReport()}, Source{Report: amdReport()})
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, r.WriteJSON(&b))
	var back Report
	require.NoError(t, json.Unmarshal([]byte(b.String()), &back))
	assert.Equal(t, r, back)
	for _, absent := range []string{`"gpuInstance"`, `"mig": null`, `"on": false,`} {
		assert.NotContains(t, b.String(), absent)
	}
}

func TestPartitionOfReport(t *testing.T) {
	parts := nvidiaReport().GPUs[0].Partitions
	assert.Equal(t, gpu.Partition{GPU: "0000:1b:00.0", Type: gpu.TypeMIG, Profile: "3g.40gb", Size: 4, UUID: "MIG-1", Complete: true, ID: "GI 1"}, parts[0].Partition("0000:1b:00.0"))
	assert.Equal(t, gpu.Partition{GPU: "0000:1b:00.0", Type: gpu.TypeMIG, Profile: "1g.10gb", Start: 6, Size: 1, ID: "GI 5"}, parts[1].Partition("0000:1b:00.0"))
}

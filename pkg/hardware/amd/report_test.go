package amd

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/report"
)

func reportOf(t *testing.T, d *Driver) report.Report {
	t.Helper()
	r, err := d.Report(t.Context())
	require.NoError(t, err)
	return r
}

func TestReport(t *testing.T) {
	c := mi300xDPX()
	c.nodes = c.nodes[:1]
	files, d := onPaper(t, c)
	dir := devicesDir + "/" + paperAddress + "/"
	for name, text := range map[string]string{
		"drm/card1/dev": "226:1", "gpu_busy_percent": "37", "mem_busy_percent": "5", "mem_info_vram_used": "1048576",
		"hwmon/hwmon3/temp2_input": "41500", "hwmon/hwmon3/power1_average": "140000000", "hwmon/hwmon3/power1_cap": "750000000",
		"ras/umc_err_count": "ue: 0\nce: 7", "product_name": "AMD Instinct MI300X OAM",
	} {
		files.set(dir+name, text+"\n")
	}
	files.set(processDir+"/4242/vram_24002", "4096\n")
	files.set("/proc/4242/comm", "python3\n")
	files.set(processDir+"/7/vram_24999", "4096\n")

	r := reportOf(t, d)
	assert.Equal(t, []report.Driver{{Vendor: gpu.AMD, Version: "6.16.13"}}, r.Drivers)
	require.Len(t, r.GPUs, 1)
	got := r.GPUs[0]
	assert.Equal(t, report.GPU{
		Name: "gpu-0000-05-00-0", Vendor: gpu.AMD, PCIAddress: paperAddress, ID: "card1", DeviceNode: "/dev/dri/renderD128",
		UUID: "GPU-e3a9f00d12345678", ProductName: "AMD Instinct MI300X OAM",
		ComputePartition: "DPX", ComputePartitions: []string{"SPX", "DPX", "QPX", "CPX"}, MemoryPartition: "NPS1",
		Memory:      &report.Memory{Total: uint64(196592 * mib), Used: new(uint64(1 << 20))},
		Utilization: &report.Utilization{Compute: 37, Memory: 5}, Temperature: new(uint32(41)),
		Power: &report.Power{Draw: 140000, Limit: 750000}, ECC: &report.ECC{Uncorrected: new(uint64(0))},
		Partitions: []report.Partition{
			{Name: "gpu-0000-05-00-0-dpx-0", Type: gpu.TypeXCP, ID: "KFD node 2", Profile: "dpx", Memory: &report.Memory{Total: 103070826496}, DeviceNode: "/dev/dri/renderD128"},
			{Name: "gpu-0000-05-00-0-dpx-1", Type: gpu.TypeXCP, Profile: "dpx", Start: 1, HalfMade: "no KFD node"},
		},
		Processes: []report.Process{{PID: 4242, Name: "python3", Memory: new(uint64(4096)), Partition: "KFD node 2"}},
		Obstacles: []string{got.Obstacles[0], "the GPU stays in mode DPX as long as process 4242 (python3) uses it"},
	}, got)
	assert.Contains(t, got.Obstacles[0], "KFD has only 1 of the 2 partitions of mode DPX")
	live, err := d.Live(t.Context(), paperAddress)
	require.NoError(t, err)
	for i, part := range got.Partitions {
		p := part.Partition(paperAddress)
		assert.Equal(t, live[i].Name(), p.Name())
		assert.Equal(t, live[i].Complete, p.Complete)
	}
}

func TestReportOfWhatDoesNotAnswer(t *testing.T) {
	other := mi308xCPX(1, 136)
	files, d := onPaper(t, mi300xSPX(), other)
	inventoryOf(t, d)
	dir := devicesDir + "/" + paperAddress + "/"
	files.fails["read "+dir+computeFile] = unix.EPERM
	files.set(dir+"gpu_busy_percent", "much\n")
	files.remove(devicesDir + "/" + other.address)
	r := reportOf(t, d)
	require.Len(t, r.GPUs, 2)
	assert.Contains(t, r.GPUs[0].Unhealthy, "is being reset")
	assert.Len(t, r.GPUs[0].Errors, 1)
	assert.Contains(t, r.GPUs[0].Errors[0], "gpu_busy_percent")
	assert.Equal(t, "AMD Instinct MI300X", r.GPUs[0].ProductName, "what it still tells is told")
	assert.Equal(t, "gpu-0001-0a-00-0", r.GPUs[1].Name)
	assert.Contains(t, r.GPUs[1].Unhealthy, "is gone from the PCI bus")

	files.remove(driverDirs[0])
	files.remove(driverDirs[1])
	_, err := d.Report(t.Context())
	assert.Error(t, err)
}

// A GPU without partitions has no modes to report.
func TestReportOfAGPUThatCannotBeCut(t *testing.T) {
	c := mi300xSPX()
	c.compute, c.memory, c.available, c.device = "", "", "", "0x740f"
	c.nodes[0].gfx = 90010
	_, d := onPaper(t, c)
	r := reportOf(t, d)
	require.Len(t, r.GPUs, 1)
	assert.Empty(t, r.GPUs[0].ComputePartition)
	assert.Empty(t, r.GPUs[0].MemoryPartition)
	assert.Empty(t, r.GPUs[0].Partitions)
	assert.Empty(t, r.GPUs[0].Errors)
	assert.Empty(t, r.GPUs[0].Unhealthy)
}

package nvidia

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Report is what the hardware says at one moment, for people. What a card or
// its driver does not tell is absent.
type Report struct {
	DriverVersion string       `json:"driverVersion"`
	CUDAVersion   string       `json:"cudaVersion"`
	Cards         []CardReport `json:"cards"`
}

// CardReport is one card.
type CardReport struct {
	// Name is the stable name ("gpu-0000-c1-00-0").
	Name        string `json:"name"`
	PCIAddress  string `json:"pciAddress"`
	Index       int    `json:"index"`
	Minor       *int   `json:"minor,omitempty"`
	UUID        string `json:"uuid,omitempty"`
	ProductName string `json:"productName,omitempty"`

	// MIG is absent on cards that do not know it.
	MIG         *SwitchReport      `json:"mig,omitempty"`
	Memory      *MemoryReport      `json:"memory,omitempty"`
	Utilization *UtilizationReport `json:"utilization,omitempty"`
	// Temperature is in degrees Celsius.
	Temperature *uint32      `json:"temperatureCelsius,omitempty"`
	Power       *PowerReport `json:"power,omitempty"`
	Persistence *bool        `json:"persistenceMode,omitempty"`
	ComputeMode string       `json:"computeMode,omitempty"`
	ECC         *ECCReport   `json:"ecc,omitempty"`

	Partitions []PartitionReport `json:"partitions,omitempty"`
	Processes  []ProcessReport   `json:"processes,omitempty"`

	// Unhealthy says what CheckHealth found wrong.
	Unhealthy string `json:"unhealthy,omitempty"`
	// Errors say what could not be read.
	Errors []string `json:"errors,omitempty"`
	// Note is for the caller, to say more about the card.
	Note string `json:"note,omitempty"`
}

// SwitchReport is something that a reset of the card may change.
type SwitchReport struct {
	On bool `json:"on"`
	// Pending is what it is going to be after the next reset.
	Pending bool `json:"pending"`
}

// MemoryReport is in bytes.
type MemoryReport struct {
	Total uint64 `json:"totalBytes"`
	Used  uint64 `json:"usedBytes"`
	// Reserved is what the driver keeps for itself, beside Used.
	Reserved uint64 `json:"reservedBytes,omitempty"`
}

// UtilizationReport is in percent of the time.
type UtilizationReport struct {
	Compute uint32 `json:"computePercent"`
	Memory  uint32 `json:"memoryPercent"`
}

// PowerReport is in milliwatts.
type PowerReport struct {
	Draw  uint32 `json:"drawMilliwatts"`
	Limit uint32 `json:"limitMilliwatts,omitempty"`
}

// ECCReport is the memory's error correction.
type ECCReport struct {
	SwitchReport
	// Uncorrected counts the errors since the driver was loaded.
	Uncorrected *uint64 `json:"uncorrectedErrors,omitempty"`
	// RemapPending and RemapFailed are about bad rows of memory, which a reset
	// replaces. Cards with partitions do not tell.
	RemapPending bool `json:"remapPending,omitempty"`
	RemapFailed  bool `json:"remapFailed,omitempty"`
}

// PartitionReport is a GPU instance.
type PartitionReport struct {
	// Name is the name of the device that it is ("gpu-0000-c1-00-0-mig-1g-10gb-4").
	Name string `json:"name"`
	// Instance is the id of the GPU instance.
	Instance int    `json:"gpuInstance"`
	Profile  string `json:"profile"`
	// Start and Size are in memory slices.
	Start  int           `json:"start"`
	Size   int           `json:"size"`
	Memory *MemoryReport `json:"memory,omitempty"`
	// Compute is empty for a GPU instance that is half made.
	Compute []ComputeReport `json:"computeInstances,omitempty"`
	// Note is for the caller, to say whose it is.
	Note string `json:"note,omitempty"`
}

// ComputeReport is a compute instance.
type ComputeReport struct {
	ID int `json:"id"`
	// Slices is how many of the GPU instance's compute slices it has.
	Slices int    `json:"slices"`
	UUID   string `json:"uuid,omitempty"`
}

// ProcessReport is a program that uses the card.
type ProcessReport struct {
	PID int `json:"pid"`
	// Name is empty when the driver does not tell it, as in a container that
	// does not see the node's processes.
	Name string `json:"name,omitempty"`
	// Memory is in bytes, absent when the driver does not tell.
	Memory *uint64 `json:"memoryBytes,omitempty"`
	// Instance is the id of the GPU instance, absent when it uses the whole card.
	Instance *int `json:"gpuInstance,omitempty"`
}

// Report reads everything. Cards that do not answer are in it with the reason;
// it fails only when NVML itself does.
func (d *Driver) Report(ctx context.Context) (Report, error) {
	var r Report
	count, err := d.count(ctx)
	if err != nil {
		return r, err
	}
	_, err = through(ctx, d.library, d.cfg.NVML, func(t *task) (struct{}, error) {
		var err error
		if r.DriverVersion, err = ask(t, "SystemGetDriverVersion", t.nvml.SystemGetDriverVersion); err != nil {
			return struct{}{}, err
		}
		cuda, err := ask(t, "SystemGetCudaDriverVersion", t.nvml.SystemGetCudaDriverVersion)
		r.CUDAVersion = fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10)
		return struct{}{}, err
	})
	if err != nil {
		return Report{}, err
	}
	r.Cards = make([]CardReport, count)
	var wait sync.WaitGroup
	for index := range count {
		wait.Go(func() { r.Cards[index] = d.reportCard(ctx, index) })
	}
	wait.Wait()
	return r, nil
}

// WriteJSON writes the report for programs.
func (r Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

func (d *Driver) reportCard(ctx context.Context, index int) CardReport {
	address, err := d.address(ctx, index)
	if err == nil {
		var r CardReport
		if r, err = onCard(ctx, d, address, func(c *card) (CardReport, error) { return c.report(index), nil }); err == nil {
			return r
		}
	} else {
		address = d.addressSeen(index)
	}
	r := CardReport{PCIAddress: address, Index: index, Unhealthy: err.Error()}
	if address != "" {
		r.Name = gpu.CardName(address)
	}
	return r
}

// reporter collects what could not be read.
type reporter struct {
	*card
	errors []string
}

// told makes one call for a report. What the card does not tell is nil, and a
// call that failed is noted.
func told[T any](r *reporter, call string, f func() (T, nvml.Return)) *T {
	value, err := ask(r.task, call, f)
	if err == nil {
		return &value
	}
	r.note(err)
	return nil
}

func (r *reporter) note(err error) {
	if err != nil && !unsupported(err) {
		r.errors = append(r.errors, err.Error())
	}
}

func orZero[T any](value *T) T {
	if value == nil {
		var none T
		return none
	}
	return *value
}

func (c *card) report(index int) CardReport {
	r := &reporter{card: c}
	card := CardReport{
		Name: gpu.CardName(c.pciAddress), PCIAddress: c.pciAddress, Index: index,
		Minor:       told(r, "DeviceGetMinorNumber", c.device.GetMinorNumber),
		UUID:        orZero(told(r, "DeviceGetUUID", c.device.GetUUID)),
		ProductName: orZero(told(r, "DeviceGetName", c.device.GetName)),
		Memory:      r.memory(),
		Temperature: told(r, "DeviceGetTemperature", func() (uint32, nvml.Return) { return c.device.GetTemperature(nvml.TEMPERATURE_GPU) }),
		ECC:         r.ecc(),
	}
	if u := told(r, "DeviceGetUtilizationRates", c.device.GetUtilizationRates); u != nil {
		card.Utilization = &UtilizationReport{Compute: u.Gpu, Memory: u.Memory}
	}
	if draw := told(r, "DeviceGetPowerUsage", c.device.GetPowerUsage); draw != nil {
		card.Power = &PowerReport{Draw: *draw, Limit: orZero(told(r, "DeviceGetEnforcedPowerLimit", c.device.GetEnforcedPowerLimit))}
	}
	if on := told(r, "DeviceGetPersistenceMode", c.device.GetPersistenceMode); on != nil {
		persistence := *on == nvml.FEATURE_ENABLED
		card.Persistence = &persistence
	}
	if mode := told(r, "DeviceGetComputeMode", c.device.GetComputeMode); mode != nil {
		card.ComputeMode = computeModeName(*mode)
	}
	if mode, err := c.migMode(); err != nil {
		r.note(err)
	} else if mode.capable {
		card.MIG = &SwitchReport{On: mode.on, Pending: mode.pending}
	}
	card.Partitions, card.Processes = r.partitions(), r.processReports()
	if _, err := c.examine(); err != nil {
		card.Unhealthy = err.Error()
	}
	card.Errors = r.errors
	return card
}

func computeModeName(mode nvml.ComputeMode) string {
	switch mode {
	case nvml.COMPUTEMODE_DEFAULT:
		return "default"
	case nvml.COMPUTEMODE_EXCLUSIVE_THREAD:
		return "exclusive thread"
	case nvml.COMPUTEMODE_PROHIBITED:
		return "prohibited"
	case nvml.COMPUTEMODE_EXCLUSIVE_PROCESS:
		return "exclusive process"
	}
	return fmt.Sprint(int(mode))
}

// memory is that of the whole card.
func (r *reporter) memory() *MemoryReport {
	v2, err := ask(r.task, "DeviceGetMemoryInfo_v2", func() (nvml.Memory_v2, nvml.Return) { return r.device.GetMemoryInfo_v2() })
	if err == nil {
		return &MemoryReport{Total: v2.Total, Used: v2.Used, Reserved: v2.Reserved}
	}
	v1 := told(r, "DeviceGetMemoryInfo", func() (nvml.Memory, nvml.Return) { return r.device.GetMemoryInfo() })
	if v1 == nil {
		return nil
	}
	return &MemoryReport{Total: v1.Total, Used: v1.Used}
}

func (r *reporter) ecc() *ECCReport {
	modes := told(r, "DeviceGetEccMode", func() (SwitchReport, nvml.Return) {
		current, pending, ret := r.device.GetEccMode()
		return SwitchReport{On: current == nvml.FEATURE_ENABLED, Pending: pending == nvml.FEATURE_ENABLED}, ret
	})
	if modes == nil {
		return nil
	}
	report := &ECCReport{SwitchReport: *modes}
	if !modes.On {
		return report
	}
	report.Uncorrected = told(r, "DeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
		return r.device.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	})
	rows := told(r, "DeviceGetRemappedRows", func() ([2]bool, nvml.Return) {
		_, _, pending, failed, ret := r.device.GetRemappedRows()
		return [2]bool{pending, failed}, ret
	})
	if rows != nil {
		report.RemapPending, report.RemapFailed = rows[0], rows[1]
	}
	return report
}

func (r *reporter) partitions() []PartitionReport {
	instances, err := r.instances()
	r.note(err)
	if len(instances) == 0 {
		return nil
	}
	all := make([]PartitionReport, 0, len(instances))
	for _, i := range instances {
		p := i.partition(r.pciAddress)
		report := PartitionReport{Name: p.Name(), Instance: i.id, Profile: p.Profile, Start: p.Start, Size: p.Size}
		for _, ci := range i.compute {
			report.Compute = append(report.Compute, ComputeReport{ID: ci.id, Slices: ci.slices, UUID: ci.uuid})
			if report.Memory == nil && ci.uuid != "" {
				report.Memory = r.memoryOf(ci.uuid)
			}
		}
		all = append(all, report)
	}
	return all
}

// memoryOf is that of a GPU instance, which the MIG devices in it share.
func (r *reporter) memoryOf(uuid string) *MemoryReport {
	device := told(r, "DeviceGetHandleByUUID", func() (nvml.Device, nvml.Return) { return r.nvml.DeviceGetHandleByUUID(uuid) })
	if device == nil {
		return nil
	}
	memory := told(r, "DeviceGetMemoryInfo", func() (nvml.Memory, nvml.Return) { return (*device).GetMemoryInfo() })
	if memory == nil {
		return nil
	}
	return &MemoryReport{Total: memory.Total, Used: memory.Used}
}

func (r *reporter) processReports() []ProcessReport {
	processes, err := r.processes()
	r.note(err)
	if len(processes) == 0 {
		return nil
	}
	all := make([]ProcessReport, 0, len(processes))
	for _, p := range processes {
		report := ProcessReport{PID: int(p.Pid)}
		// The driver knows no name where this process does not see that one.
		report.Name, _ = ask(r.task, "SystemGetProcessName", func() (string, nvml.Return) { return r.nvml.SystemGetProcessName(int(p.Pid)) })
		if p.UsedGpuMemory != notAvailable {
			report.Memory = &p.UsedGpuMemory
		}
		if p.GpuInstanceId != noInstance {
			id := int(p.GpuInstanceId)
			report.Instance = &id
		}
		all = append(all, report)
	}
	return all
}

// notAvailable stands where NVML has no number (NVML_VALUE_NOT_AVAILABLE).
const notAvailable = 1<<64 - 1

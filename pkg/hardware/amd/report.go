package amd

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/report"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// Report reads what there is to say about the driver and all GPUs. GPUs that
// cannot be read are in it with the reason.
func (d *Driver) Report(ctx context.Context) (report.Report, error) {
	all, err := d.withLost(ctx)
	if err != nil {
		return report.Report{}, err
	}
	driver := report.Driver{Vendor: gpu.AMD}
	driver.Version, err = through(ctx, d.module, d.cfg.Files, func(t *task) (string, error) {
		return t.optional(path.Join(moduleDir, "version"))
	})
	if err != nil {
		return report.Report{}, err
	}
	gpus := make([]*report.GPU, len(all))
	var wait sync.WaitGroup
	for i, address := range all {
		wait.Go(func() { gpus[i] = d.reportGPU(ctx, address) })
	}
	wait.Wait()
	r := report.Report{Drivers: []report.Driver{driver}, GPUs: []report.GPU{}}
	for _, c := range gpus {
		if c != nil {
			r.GPUs = append(r.GPUs, *c)
		}
	}
	return r, nil
}

// reportGPU gives nil for GPUs that are not ours.
func (d *Driver) reportGPU(ctx context.Context, pciAddress string) *report.GPU {
	out, err := onGPU(ctx, d, pciAddress, func(c *gpuHandle) (*report.GPU, error) {
		if ours, err := c.ours(); err != nil || !ours {
			return nil, err
		}
		return c.report(), nil
	})
	if err != nil {
		return &report.GPU{
			Name: gpu.GPUName(pciAddress), Vendor: gpu.AMD, PCIAddress: pciAddress, ID: vendorName, Unhealthy: err.Error(),
		}
	}
	return out
}

// reporter collects what could not be read.
type reporter struct {
	*gpuHandle
	errors []string
}

func (r *reporter) note(err error) {
	if err == nil {
		return
	}
	if text := err.Error(); !slices.Contains(r.errors, text) {
		r.errors = append(r.errors, text)
	}
}

// noted is what f tells; a failure is taken down.
func noted[T any](r *reporter, f func() (T, error)) T {
	value, err := f()
	r.note(err)
	return value
}

// number reads a file of the GPU that has one; nil when it is not there.
func (r *reporter) number(name string) *uint64 {
	text, err := r.optional(r.file(name))
	if err != nil || text == "" {
		r.note(err)
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		r.note(&FileError{Subject: r.Subject(), Op: "read", Name: r.file(name), Err: err})
		return nil
	}
	return &n
}

func (c *gpuHandle) report() *report.GPU {
	r := &reporter{gpuHandle: c}
	out := &report.GPU{
		Name: gpu.GPUName(c.pciAddress), Vendor: gpu.AMD, PCIAddress: c.pciAddress, ID: r.primaryNode(),
		Utilization: r.utilization(), Memory: r.memoryReport(), ECC: r.ecc(),
	}
	var named gpu.GPU
	r.note(c.name(&named))
	out.UUID, out.ProductName = named.UUID, named.ProductName
	if minor, err := c.firstMinor(); err == nil {
		out.DeviceNode = path.Join(renderDir, renderName(minor))
	}
	out.Temperature, out.Power = r.sensors()
	l, err := c.look()
	r.note(err)
	if err == nil {
		r.modes(out, l)
		out.Partitions, out.Processes = r.partitions(l), r.processReports(l)
		out.Obstacles = r.obstacles(l)
	}
	if err := c.examine(); err != nil {
		out.Unhealthy = err.Error()
		r.errors = slices.DeleteFunc(r.errors, func(text string) bool { return text == out.Unhealthy })
	}
	out.Errors = r.errors
	return out
}

// primaryNode is the GPU's number in DRM ("card1"), by which amd-smi and others
// name it.
func (r *reporter) primaryNode() string {
	for _, name := range noted(r, func() ([]string, error) { return r.list(r.file("drm")) }) {
		if digits, ok := strings.CutPrefix(name, "card"); ok && digits != "" {
			return name
		}
	}
	return vendorName
}

func (r *reporter) utilization() *report.Utilization {
	busy, memory := r.number("gpu_busy_percent"), r.number("mem_busy_percent")
	if busy == nil || *busy > 100 {
		return nil
	}
	u := &report.Utilization{Compute: uint32(*busy)}
	if memory != nil && *memory <= 100 {
		u.Memory = uint32(*memory)
	}
	return u
}

func (r *reporter) memoryReport() *report.Memory {
	total := r.number(vramTotalFile)
	if total == nil {
		return nil
	}
	return &report.Memory{Total: *total, Used: r.number("mem_info_vram_used")}
}

func (r *reporter) ecc() *report.ECC {
	if _, err := r.stat(r.file(rasDir)); err != nil {
		return nil
	}
	_, sum, err := r.uncorrected()
	if err != nil {
		r.note(err)
		return nil
	}
	return &report.ECC{Uncorrected: &sum}
}

// sensors are those of hwmon: thousandths of a degree, and millionths of a watt
// (docs.kernel.org/hwmon/sysfs-interface.html).
func (r *reporter) sensors() (*uint32, *report.Power) {
	names, err := r.list(r.file("hwmon"))
	if err != nil || len(names) == 0 {
		return nil, nil // not every driver has it
	}
	scaled := func(name string) *uint32 {
		n := r.number(path.Join("hwmon", names[0], name))
		if n == nil || *n > 1<<32*1000-1 {
			return nil
		}
		out := uint32(*n / 1000)
		return &out
	}
	var power *report.Power
	draw := scaled("power1_average")
	if draw == nil {
		draw = scaled("power1_input")
	}
	if draw != nil {
		power = &report.Power{Draw: *draw}
		if limit := scaled("power1_cap"); limit != nil {
			power.Limit = *limit
		}
	}
	// The edge of the chip; MI300 and later have none and tell of the junction.
	temperature := scaled("temp1_input")
	if temperature == nil {
		temperature = scaled("temp2_input")
	}
	return temperature, power
}

func (r *reporter) modes(out *report.GPU, l live) {
	if l.mode == "" {
		return
	}
	out.ComputePartition = string(l.mode)
	s, err := r.shape()
	if err != nil {
		r.note(err)
		return
	}
	out.MemoryPartition = string(s.memory)
	offer := noted(r, func() ([]xcp.Mode, error) { return r.gpuHandle.modes(l.mode, s.memory, l.nodes()) })
	for _, mode := range offer {
		out.ComputePartitions = append(out.ComputePartitions, string(mode))
	}
}

// nodeName is how a report names a node of KFD.
func nodeName(n node) string { return "KFD node " + strconv.Itoa(n.number) }

// partitions are those of a GPU that is cut.
func (r *reporter) partitions(l live) []report.Partition {
	if len(l.partitions) < 2 {
		return nil
	}
	all := make([]report.Partition, len(l.partitions))
	for i, p := range l.partitions {
		part := r.partition(l.mode, p)
		out := report.Partition{Name: part.Name(), Type: part.Type, Profile: part.Profile, Start: part.Start}
		if p.node == nil {
			out.HalfMade = part.ID
		} else {
			out.ID, out.DeviceNode = nodeName(*p.node), path.Join(renderDir, part.ID)
			if n := noted(r, func() (int64, error) { return r.memoryOf(*p.node) }); n > 0 {
				out.Memory = &report.Memory{Total: uint64(n)}
			}
		}
		all[i] = out
	}
	return all
}

// processReports are the processes of the GPU. One that can use all partitions is
// told with the one in which it has memory.
func (r *reporter) processReports(l live) []report.Process {
	who, err := r.processes(l)
	r.note(err)
	var all []report.Process
	for _, p := range who.gpu {
		out := report.Process{PID: p.pid, Name: p.name}
		var sum uint64
		var on []string
		for _, q := range l.partitions {
			if q.node == nil {
				continue
			}
			text, err := r.optional(path.Join(processDir, strconv.Itoa(p.pid), "vram_"+q.node.gpuID))
			n, parseErr := strconv.ParseUint(text, 10, 62)
			if err != nil || parseErr != nil {
				continue
			}
			if sum += n; n > 0 {
				on = append(on, nodeName(*q.node))
			}
		}
		out.Memory = &sum
		if len(on) == 1 && len(l.partitions) > 1 {
			out.Partition = on[0]
		}
		all = append(all, out)
	}
	return all
}

// obstacles are the reasons why something of the GPU cannot be had, each once.
func (r *reporter) obstacles(l live) []string {
	var all []string
	for _, index := range l.missing() {
		if len(l.nodes()) > 0 {
			all = append(all, shortfall(l, index))
		}
	}
	if l.mode == "" {
		return all
	}
	if busy := noted(r, func() (string, error) { return r.busy(l) }); busy != "" {
		all = append(all, busy)
	}
	return all
}

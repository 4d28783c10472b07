package amd

import (
	"context"
	"errors"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// Usage implements hardware.Driver. amdgpu measures whole GPUs; KFD reports what the processes
// use of each partition. Files: docs.kernel.org/gpu/amdgpu/driver-misc.html and thermal.html.
func (d *Driver) Usage(ctx context.Context, pciAddress string) (gpu.Usage, error) {
	return forGPU(ctx, d, pciAddress, (*gpuHandle).usage)
}

func (c *gpuHandle) usage() (gpu.Usage, error) {
	u := gpu.Usage{Measured: gpu.Measured{}}
	if err := c.wholeUsage(u.Measured); err != nil {
		return u, err
	}
	l, err := c.Look()
	if err != nil {
		return u, err
	}
	uses, told, err := sysfs.Uses(c.Task, l.GPUIDs())
	if err != nil {
		return u, err
	}
	if told {
		sum(uses, l.Nodes(), u.Measured)
		delete(u.Measured, gpu.MemoryUsed)
	}
	if err := c.vram(u.Measured); err != nil {
		return u, err
	}
	whole := l.Mode == "" || l.Mode == xcp.SPX
	for _, p := range l.Partitions {
		if p.Node == nil {
			continue
		}
		name := gpu.NameOf(c.PCIAddress)
		mine := usesOf(uses, p.Node.GPUID)
		if !whole {
			part, err := c.partUsage(l, p)
			if err != nil {
				return u, err
			}
			if told {
				sum(mine, []sysfs.Node{*p.Node}, part.Measured)
			}
			name = part.Name()
			u.Partitions = append(u.Partitions, part)
		}
		for _, use := range mine {
			measured := gpu.Measured{}
			sum([]sysfs.Use{use}, []sysfs.Node{*p.Node}, measured)
			delete(measured, gpu.ProcessCount)
			u.Processes = append(u.Processes, gpu.ProcessUsage{PID: use.PID, Device: name, Measured: measured})
		}
	}
	return u, nil
}

func (c *gpuHandle) partUsage(l sysfs.Live, p sysfs.Partition) (gpu.PartitionUsage, error) {
	part := gpu.PartitionUsage{Partition: c.Partition(l.Mode, p), Instance: strconv.Itoa(p.Index), Measured: gpu.Measured{}}
	memory, err := p.Node.Memory(c.Task)
	if memory > 0 {
		part.Measured[gpu.MemoryTotal] = float64(memory)
	}
	return part, err
}

func usesOf(uses []sysfs.Use, gpuID string) (mine []sysfs.Use) {
	return lists.Filter(uses, func(u sysfs.Use) bool { return u.GPUID == gpuID })
}

// sum adds what processes use of nodes. Without processes, whether the chip reports the compute units
// is known of those for computing only: their KFD has get_cu_occupancy (Linux'
// amdgpu_amdkfd_arcturus.c, _aldebaran.c and _gc_9_4_3.c).
func sum(uses []sysfs.Use, nodes []sysfs.Node, to gpu.Measured) {
	units, tells := int64(0), true
	for _, n := range nodes {
		units += n.ComputeUnits
		tells = tells && n.Computes()
	}
	memory, busy, pids := uint64(0), int64(0), map[int]bool{}
	for _, u := range uses {
		memory += u.Memory
		pids[u.PID] = true
		if busy >= 0 && u.ComputeUnits >= 0 {
			busy += u.ComputeUnits
		} else {
			busy = -1
		}
	}
	to[gpu.MemoryUsed], to[gpu.ProcessCount] = float64(memory), float64(len(pids))
	if busy >= 0 && units > 0 && (tells || len(uses) > 0) {
		to[gpu.Occupied] = min(1, float64(busy)/float64(units))
	}
}

// wholeUsage reads what amdgpu measures of the whole GPU. Not every chip has every file, and
// some files of a chip cannot be read.
func (c *gpuHandle) wholeUsage(to gpu.Measured) error {
	for measure, file := range map[gpu.Measure]string{gpu.Utilization: "gpu_busy_percent", gpu.MemoryUtilization: "mem_busy_percent"} {
		if n, known, err := c.number(c.File(file)); err != nil {
			return err
		} else if known {
			to[measure] = min(1, n/100)
		}
	}
	power, known, err := c.power()
	if err != nil {
		return err
	}
	if known {
		to[gpu.Power] = power
	}
	corrected, uncorrected, known, err := c.errorCounts()
	if known {
		to[gpu.CorrectedErrors], to[gpu.UncorrectedErrors] = float64(corrected), float64(uncorrected)
	}
	return err
}

func (c *gpuHandle) vram(to gpu.Measured) error {
	for measure, file := range map[gpu.Measure]string{gpu.MemoryUsed: "mem_info_vram_used", gpu.MemoryTotal: sysfs.VRAMTotalFile} {
		if n, known, err := c.number(c.File(file)); err != nil {
			return err
		} else if known {
			to[measure] = n
		}
	}
	return nil
}

// power is what the GPU draws, in watts: the average, or what it draws at this moment where the
// chip has no average, as MI300.
func (c *gpuHandle) power() (watts float64, known bool, err error) {
	sensors, err := c.List(c.File("hwmon"))
	if sysfs.Absent(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, c.Explain(err)
	}
	for _, sensor := range sensors {
		for _, file := range []string{"power1_average", "power1_input"} {
			if n, known, err := c.number(c.File(path.Join("hwmon", sensor, file))); err != nil || known {
				return n / 1e6, known, err
			}
		}
	}
	return 0, false, nil
}

// number reads a file with a number. It is not known if there is no such file, or if the chip
// does not have it: then the file has a sentence, or cannot be read.
func (c *gpuHandle) number(name string) (n float64, known bool, err error) {
	text, err := c.Read(name)
	if sysfs.Absent(err) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, c.Explain(err)
	}
	value, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, false, nil //nolint:nilerr // a sentence
	}
	return float64(value), true, nil
}

package models

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

type parsedGPU struct {
	nvidia *GPU
	amd    *AMDGPU
	pci    string
	numa   int
}

// resolveGPUs unfolds the counts and puts each vendor's GPUs in PCI order,
// which is the order of their indexes.
func resolveGPUs(files []gpuFile) (gpus []GPU, amd []AMDGPU, err error) {
	if len(files) == 0 {
		return nil, nil, errors.New("gpus: empty; name at least one GPU, like {model: H100-80GB, count: 8}")
	}
	var all []parsedGPU
	for i, f := range files {
		group, err := f.resolve(fmt.Sprintf("gpus[%d]", i))
		if err != nil {
			return nil, nil, err
		}
		if all = append(all, group...); len(all) > MaxGPUs {
			return nil, nil, fmt.Errorf("gpus[%d].count: more than %d GPUs; NVIDIA's driver numbers no more", i, MaxGPUs)
		}
	}
	if err := assignAddresses(all); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(all, func(a, b parsedGPU) int { return strings.Compare(a.pci, b.pci) })
	for _, c := range all {
		switch {
		case c.nvidia != nil:
			c.nvidia.PCI, c.nvidia.NUMANode = c.pci, c.numa
			gpus = append(gpus, *c.nvidia)
		case c.amd != nil:
			c.amd.PCI, c.amd.NUMANode = c.pci, c.numa
			amd = append(amd, *c.amd)
		}
	}
	return gpus, amd, checkRenderMinors(amd)
}

// resolve checks one entry and makes its GPUs.
func (f gpuFile) resolve(key string) ([]parsedGPU, error) {
	one, err := f.vendor(key)
	if err != nil {
		return nil, err
	}
	count := 1
	if f.Count != nil {
		count = *f.Count
	}
	if count < 1 || count > MaxGPUs {
		return nil, fmt.Errorf("%s.count: %d is not between 1 and %d", key, count, MaxGPUs)
	}
	if f.NVLinkBridge < 0 || f.NVLinkBridge == 1 || f.NVLinkBridge > 0 && count%f.NVLinkBridge != 0 {
		return nil, fmt.Errorf("%s.nvLinkBridge: %d GPUs cannot be joined by %d", key, count, f.NVLinkBridge)
	}
	numa := unassignedNUMA
	if f.NUMANode != nil {
		if numa = *f.NUMANode; numa < -1 || numa > 1023 {
			return nil, fmt.Errorf("%s.numaNode: %d is not between -1 (none) and 1023", key, numa)
		}
	}
	if len(f.PCI) != 0 && len(f.PCI) != count {
		return nil, fmt.Errorf("%s.pci: %d addresses for count %d", key, len(f.PCI), count)
	}
	gpus := make([]parsedGPU, count)
	for i := range gpus {
		gpus[i] = one()
		gpus[i].numa = numa
		if f.NVLinkBridge != 0 {
			if gpus[i].nvidia == nil || gpus[i].nvidia.Model.NVLinks == 0 || gpus[i].nvidia.Model.NVSwitch {
				return nil, fmt.Errorf("%s.nvLinkBridge: %s takes no NVLink bridge", key, f.Model)
			}
			gpus[i].nvidia.Bridge = fmt.Sprintf("%s/%d", key, i/f.NVLinkBridge)
		}
		if len(f.PCI) != 0 {
			if !IsPCIAddress(f.PCI[i]) {
				return nil, fmt.Errorf("%s.pci[%d]: %q is not an address like 0000:1b:00.0 (small letters)", key, i, f.PCI[i])
			}
			gpus[i].pci = f.PCI[i]
		}
	}
	return gpus, nil
}

// vendor checks the keys that are one vendor's and returns what makes its GPU.
func (f gpuFile) vendor(key string) (func() parsedGPU, error) {
	model, amd, err := f.findModel()
	if err != nil {
		return nil, fmt.Errorf("%s.%w", key, err)
	}
	if amd != nil {
		g, err := f.resolveAMD(key, amd)
		return func() parsedGPU { c := g; return parsedGPU{amd: &c} }, err
	}
	if f.MIGMode != "" && f.MIGMode != "enabled" && f.MIGMode != "disabled" {
		return nil, fmt.Errorf("%s.migMode: %q is neither enabled nor disabled", key, f.MIGMode)
	}
	if f.MIGMode == "enabled" && !model.HasMIG() {
		return nil, fmt.Errorf("%s.migMode: %s has no MIG", key, model.Key)
	}
	if f.ComputeMode != "" || f.MemoryMode != "" || f.VirtualFunction {
		return nil, fmt.Errorf("%s: computeMode, memoryMode and virtualFunction are for AMD's GPUs, %s is NVIDIA's", key, model.Key)
	}
	return func() parsedGPU { return parsedGPU{nvidia: &GPU{Model: model, MIGMode: f.MIGMode == "enabled"}} }, nil
}

// findModel returns the model of either vendor that the entry names or describes. Errors begin
// with the key in the entry.
func (f gpuFile) findModel() (*NVIDIAModel, *AMDModel, error) {
	given := f.firstKey()
	if f.Model == "" && given != "" {
		m, err := f.model()
		return m, nil, err
	}
	name, err := fullKey(f.Model)
	if err != nil {
		return nil, nil, err
	}
	if given != "" {
		return nil, nil, fmt.Errorf("%s: the tables have that of %s; leave out %s, or model", given, name, given)
	}
	if amd, ok := AMDModelByKey(name); ok {
		return nil, amd, nil
	}
	m, _ := NVIDIAModelByKey(name)
	return m, nil, nil
}

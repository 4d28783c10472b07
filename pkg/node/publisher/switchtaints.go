package publisher

import (
	"context"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// SwitchTaints says which devices are tainted while the node is switched to another profile. The
// zero value taints none.
type SwitchTaints struct {
	// By identifies the switch. Zero: the taints of an earlier run are kept, because the
	// GPUNode cannot be read.
	By v1beta1.PublishedTaints
	// Value is the value of the taints.
	Value string
	// GPUs are the names of the GPUs of which all devices are tainted.
	GPUs []string
	// Withhold: devices of GPUs that no claim holds are not published.
	Withhold bool
	// Offers has, by the name of a GPU, its future layout. Devices that the layout does not
	// offer are tainted.
	Offers map[string]profile.Layout
	// devices are the names of single tainted devices.
	devices []string
}

// Reservation is what a defragmentation keeps free. The zero value reserves nothing.
type Reservation struct {
	// ID is the value of the taints.
	ID string
	// Devices are the names of the tainted devices.
	Devices []string
}

func (o *SwitchTaints) taint() resourceapi.DeviceTaint {
	return noSchedule(names.TaintSwitching, o.Value)
}

// all reports whether all devices of a GPU are tainted.
func (o *SwitchTaints) all(name string) bool { return slices.Contains(o.GPUs, name) }

// single reports whether a device is tainted although not all devices of its GPU are.
func (o *SwitchTaints) single(name string, p gpu.Placement) bool {
	if o.all(name) {
		return false
	}
	layout, shrinks := o.Offers[name]
	return shrinks && !layout.Offers(p) || slices.Contains(o.devices, p.Name())
}

// KeepTaints keeps the taints of the published ResourceSlices.
func (p *Publisher) KeepTaints(ctx context.Context) error {
	published, err := p.Stored(ctx)
	if err != nil {
		return err
	}
	p.SetSwitchTaints(ctx, keptTaints(p.GPUs.Now(), published))
	return nil
}

// keptTaints returns the taints of published ResourceSlices.
func keptTaints(gpus []gpu.GPU, published []resourceapi.ResourceSlice) SwitchTaints {
	var o SwitchTaints
	for i := range gpus {
		name, total := gpus[i].Name(), 0
		var tainted []string
		for _, s := range published {
			for _, d := range s.Spec.Devices {
				if d.Name != name && !strings.HasPrefix(d.Name, name+"-") {
					continue
				}
				total++
				at := slices.IndexFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == names.TaintSwitching })
				if at >= 0 {
					tainted, o.Value = append(tainted, d.Name), d.Taints[at].Value
				}
			}
		}
		switch {
		case total == 0 && len(published) > 0:
			o.GPUs = append(o.GPUs, name) // all of its devices may have been withheld
		case len(tainted) == 0:
		case len(tainted) == total:
			o.GPUs = append(o.GPUs, name)
		default:
			o.devices = append(o.devices, tainted...)
		}
	}
	return o
}

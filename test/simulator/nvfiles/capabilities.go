package nvfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/disk"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// The driver numbers all instances that could exist: 15 GPU instances of 8 compute instances
// on each GPU, from minor 3 on.
const (
	configMinor   = 1
	monitorMinor  = 2
	firstMinor    = 3
	maxInstances  = 15
	maxCompute    = 8
	instanceStep  = 1 + maxCompute
	gpuStep       = maxInstances * instanceStep
	configMode    = 0o400 // 256 in mig/config
	monitorMode   = 0o444 // 292 in mig/monitor
	instanceMode  = 0o444
	capabilityFmt = "DeviceFileMinor: %d\nDeviceFileMode: %d\nDeviceFileModify: 1\n"
)

// Capability is the right to use an instance: an access file, which names the minor of a
// device node below /dev/nvidia-caps, and that node. Who can open the node can use the
// instance (MIG User Guide, "Device Nodes and Capabilities").
type Capability struct {
	// path is below /proc/driver/nvidia/capabilities.
	path  string
	minor int
	mode  os.FileMode
}

func instanceMinor(gpu, instance int) int {
	return firstMinor + gpu*gpuStep + instance*instanceStep
}

func instanceCapability(gpu, instance int) Capability {
	return Capability{
		path:  fmt.Sprintf("gpu%d/mig/gi%d/access", gpu, instance),
		minor: instanceMinor(gpu, instance), mode: instanceMode,
	}
}

func computeCapability(gpu, instance, compute int) Capability {
	return Capability{
		path:  fmt.Sprintf("gpu%d/mig/gi%d/ci%d/access", gpu, instance, compute),
		minor: instanceMinor(gpu, instance) + 1 + compute, mode: instanceMode,
	}
}

// driverCapabilities belong to no GPU.
func driverCapabilities() []Capability {
	return []Capability{
		{path: "mig/config", minor: configMinor, mode: configMode},
		{path: "mig/monitor", minor: monitorMinor, mode: monitorMode},
	}
}

// Capabilities lists what the instances of a GPU have now.
func Capabilities(index int, g *nvstate.GPU) []Capability {
	var caps []Capability
	for _, i := range g.Instances {
		caps = append(caps, instanceCapability(index, i.ID))
		for _, c := range i.Compute {
			caps = append(caps, computeCapability(index, i.ID, c.ID))
		}
	}
	return caps
}

// migMinors is the content of /proc/driver/nvidia-caps/mig-minors: every
// instance that any GPU could have.
var migMinors = sync.OnceValue(func() string {
	var b strings.Builder
	fmt.Fprintf(&b, "config %d\nmonitor %d\n", configMinor, monitorMinor)
	for gpu := range models.MaxGPUs {
		for gi := range maxInstances {
			fmt.Fprintf(&b, "gpu%d/gi%d/access %d\n", gpu, gi, instanceMinor(gpu, gi))
			for ci := range maxCompute {
				fmt.Fprintf(&b, "gpu%d/gi%d/ci%d/access %d\n", gpu, gi, ci, instanceMinor(gpu, gi)+1+ci)
			}
		}
	}
	return b.String()
})

func capabilitiesDir(root string) string {
	return filepath.Join(root, "proc/driver/nvidia/capabilities")
}

func capabilityNode(root string, minor int) string {
	return filepath.Join(DriverRoot(root), "dev/nvidia-caps/nvidia-cap"+strconv.Itoa(minor))
}

// MoveCapabilities makes the files follow a change on a GPU.
func (l *Layout) MoveCapabilities(st *nvstate.State, before, after []Capability) error {
	for _, c := range before {
		if !slices.Contains(after, c) {
			if err := l.removeCapability(c); err != nil {
				return err
			}
		}
	}
	for _, c := range after {
		if !slices.Contains(before, c) {
			if err := l.addCapability(st, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Layout) addCapability(st *nvstate.State, c Capability) error {
	if err := l.node(capabilityNode(l.Root, c.minor), c.mode, st.Majors.Caps, c.minor); err != nil {
		return err
	}
	return disk.WriteFile(filepath.Join(capabilitiesDir(l.Root), c.path), fmt.Sprintf(capabilityFmt, c.minor, c.mode))
}

// removeCapability removes the file, its folder (gi7 or ci0) and the node.
func (l *Layout) removeCapability(c Capability) error {
	if err := os.RemoveAll(filepath.Dir(filepath.Join(capabilitiesDir(l.Root), c.path))); err != nil {
		return err
	}
	return disk.RemoveFile(capabilityNode(l.Root, c.minor))
}

// SyncCapabilities makes the files match the state, whatever a killed process left. It does
// not touch files that are right, since containers may start meanwhile.
func (l *Layout) SyncCapabilities(st *nvstate.State) error {
	want := driverCapabilities()
	for i, g := range l.GPUs {
		state, _ := st.GPU(g.PCI)
		want = append(want, Capabilities(i, state)...)
		if g.Model.HasMIG() {
			// Exists and is empty without instances (seen on an H200).
			dir := filepath.Join(capabilitiesDir(l.Root), fmt.Sprintf("gpu%d/mig", i))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
	}
	for _, c := range want {
		if err := l.addCapability(st, c); err != nil {
			return err
		}
	}
	return l.pruneCapabilities(want)
}

func (l *Layout) pruneCapabilities(want []Capability) error {
	keep := map[string]bool{}
	for _, c := range want {
		keep[capabilityNode(l.Root, c.minor)] = true
		keep[filepath.Dir(filepath.Join(capabilitiesDir(l.Root), c.path))] = true
	}
	for _, pattern := range []string{
		filepath.Join(DriverRoot(l.Root), "dev/nvidia-caps/nvidia-cap*"),
		filepath.Join(capabilitiesDir(l.Root), "gpu*/mig/gi*/ci*"),
		filepath.Join(capabilitiesDir(l.Root), "gpu*/mig/gi*"),
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, path := range found {
			if keep[path] || strings.HasSuffix(path, "/access") {
				continue
			}
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

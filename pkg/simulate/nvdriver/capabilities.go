package nvdriver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tranche-dev/tranche/pkg/models"
	"github.com/tranche-dev/tranche/pkg/simulate/disk"
	"github.com/tranche-dev/tranche/pkg/simulate/nvstate"
)

// Capabilities: the files below /proc/driver/nvidia/capabilities that name,
// for every instance, the minor of the node below /dev/nvidia-caps whose
// readers may use it (MIG User Guide, "Device Nodes and Capabilities").

// The driver numbers instances it could have, not those it has: 15 GPU
// instances of 8 compute instances on each GPU, from minor 3 on.
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

// capability is one access file and its device node.
type capability struct {
	// path is below /proc/driver/nvidia/capabilities.
	path  string
	minor int
	mode  os.FileMode
}

func instanceMinor(gpu, instance int) int {
	return firstMinor + gpu*gpuStep + instance*instanceStep
}

func instanceCapability(gpu, instance int) capability {
	return capability{
		path:  fmt.Sprintf("gpu%d/mig/gi%d/access", gpu, instance),
		minor: instanceMinor(gpu, instance), mode: instanceMode,
	}
}

func computeCapability(gpu, instance, compute int) capability {
	return capability{
		path:  fmt.Sprintf("gpu%d/mig/gi%d/ci%d/access", gpu, instance, compute),
		minor: instanceMinor(gpu, instance) + 1 + compute, mode: instanceMode,
	}
}

// driverCapabilities belong to no GPU.
func driverCapabilities() []capability {
	return []capability{
		{path: "mig/config", minor: configMinor, mode: configMode},
		{path: "mig/monitor", minor: monitorMinor, mode: monitorMode},
	}
}

// capabilities lists what the GPU's instances have now.
func (d *device) capabilities(g *nvstate.GPU) []capability {
	var caps []capability
	for _, i := range g.Instances {
		caps = append(caps, instanceCapability(d.index, i.ID))
		for _, c := range i.Compute {
			caps = append(caps, computeCapability(d.index, i.ID, c.ID))
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
	return filepath.Join(driverRoot(root), "dev/nvidia-caps/nvidia-cap"+strconv.Itoa(minor))
}

// moveCapabilities makes the files follow a change on a GPU.
func (n *NVML) moveCapabilities(st *nvstate.State, before, after []capability) error {
	for _, c := range before {
		if !slices.Contains(after, c) {
			if err := n.removeCapability(c); err != nil {
				return err
			}
		}
	}
	for _, c := range after {
		if !slices.Contains(before, c) {
			if err := n.addCapability(st, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *NVML) addCapability(st *nvstate.State, c capability) error {
	if err := n.node(capabilityNode(n.root, c.minor), c.mode, st.Majors.Caps, c.minor); err != nil {
		return err
	}
	return disk.WriteFile(filepath.Join(capabilitiesDir(n.root), c.path), fmt.Sprintf(capabilityFmt, c.minor, c.mode))
}

// removeCapability takes the file, its folder (gi7 or ci0) and the node.
func (n *NVML) removeCapability(c capability) error {
	if err := os.RemoveAll(filepath.Dir(filepath.Join(capabilitiesDir(n.root), c.path))); err != nil {
		return err
	}
	return disk.RemoveFile(capabilityNode(n.root, c.minor))
}

// syncCapabilities makes the files match the state whatever a killed process
// left, without touching those that are right: containers may start meanwhile.
func (n *NVML) syncCapabilities(st *nvstate.State) error {
	want := driverCapabilities()
	for _, d := range n.devices {
		g, _ := st.GPU(d.gpu().PCI)
		want = append(want, d.capabilities(g)...)
		if d.gpu().Model.HasMIG() {
			// Exists and is empty without instances (seen on an H200).
			dir := filepath.Join(capabilitiesDir(n.root), fmt.Sprintf("gpu%d/mig", d.index))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
	}
	for _, c := range want {
		if err := n.addCapability(st, c); err != nil {
			return err
		}
	}
	return n.pruneCapabilities(want)
}

func (n *NVML) pruneCapabilities(want []capability) error {
	keep := map[string]bool{}
	for _, c := range want {
		keep[capabilityNode(n.root, c.minor)] = true
		keep[filepath.Dir(filepath.Join(capabilitiesDir(n.root), c.path))] = true
	}
	for _, pattern := range []string{
		filepath.Join(driverRoot(n.root), "dev/nvidia-caps/nvidia-cap*"),
		filepath.Join(capabilitiesDir(n.root), "gpu*/mig/gi*/ci*"),
		filepath.Join(capabilitiesDir(n.root), "gpu*/mig/gi*"),
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

package publish_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

// amdMachine is what GPUs of one model and memory mode can be cut into: the
// modes with their numbers of partitions, as the kernel's rule has them
// (aqua_vanjaram.c).
type amdMachine struct {
	model, memoryMode string
	modes             map[string]int
}

// amdMachines is every chip and memory mode that differs from the others in this.
var amdMachines = []amdMachine{
	{"MI300X", "NPS1", map[string]int{"cpx": 8, "qpx": 4, "dpx": 2, "spx": 1}},
	{"MI300X", "NPS2", map[string]int{"dpx": 2}},
	{"MI300X", "NPS4", map[string]int{"cpx": 8, "qpx": 4}},
	{"MI300A", "NPS1", map[string]int{"cpx": 6, "tpx": 3, "spx": 1}},
	{"MI308X", "NPS1", map[string]int{"cpx": 4, "dpx": 2, "spx": 1}},
	{"MI308X", "NPS4", map[string]int{"cpx": 4}},
	{"MI355X", "NPS2", map[string]int{"cpx": 8, "qpx": 4, "dpx": 2}},
}

func (m amdMachine) name() string { return m.model + " under " + m.memoryMode }

// inventory is a machine with so many of the GPUs.
func (m amdMachine) inventory(t *testing.T, count int) *models.Inventory {
	t.Helper()
	inv, err := models.ParseInventory(fmt.Appendf(nil, "gpus: [{model: %s, count: %d, memoryMode: %q}]", m.model, count, m.memoryMode))
	require.NoError(t, err)
	return inv
}

// gpus are so many of the GPUs.
func (m amdMachine) gpus(t *testing.T, count int) []publish.GPU {
	t.Helper()
	return gpusOf(t, m.inventory(t, count))
}

// amdDriver reads a simulated machine the way the node's plugin does: the files
// of its kernel.
func amdDriver(t *testing.T, inv *models.Inventory) *amd.Driver {
	t.Helper()
	kernel, err := amdgpu.New(inv, amdgpu.Options{Root: memory.TempDir(t), Seed: node, Sleep: func(time.Duration) {}, Logf: t.Logf})
	require.NoError(t, err)
	driver, err := amd.New(amd.Config{Files: kernel, Logger: testr.New(t)})
	require.NoError(t, err)
	require.NoError(t, driver.Open(t.Context()))
	t.Cleanup(func() { require.NoError(t, driver.Close(context.WithoutCancel(t.Context()))) })
	return driver
}

// amdGPUs are the driver's GPUs.
func amdGPUs(t *testing.T, driver *amd.Driver) []publish.GPU {
	t.Helper()
	found, err := driver.Inventory(t.Context())
	require.NoError(t, err)
	gpus := make([]publish.GPU, len(found))
	for i := range found {
		gpus[i].GPU = found[i]
	}
	return gpus
}

// amdPiece is a partition, or with the mode "spx" the whole GPU.
type amdPiece struct {
	gpu, mode string
	index     int
}

func (p amdPiece) device() string {
	if p.mode == "spx" {
		return p.gpu
	}
	return fmt.Sprintf("%s-%s-%d", p.gpu, p.mode, p.index)
}

// pieces are those of a GPU, by device name.
func (m amdMachine) pieces(gpuID string) map[string]amdPiece {
	all := map[string]amdPiece{}
	for mode, n := range m.modes {
		for i := range n {
			p := amdPiece{gpuID, mode, i}
			all[p.device()] = p
		}
	}
	return all
}

// amdHardware is what a machine's GPUs allow, worked out from the numbers of
// partitions alone: a GPU is in one mode, and each piece is there once. It
// knows nothing of what was published.
type amdHardware struct {
	amdMachine
	gpus   []string
	pieces map[string]amdPiece
	used   map[string]amdPiece
}

func newAMDHardware(m amdMachine, gpus []publish.GPU) *amdHardware {
	h := &amdHardware{amdMachine: m, pieces: map[string]amdPiece{}, used: map[string]amdPiece{}}
	for _, g := range gpus {
		h.gpus = append(h.gpus, g.Name())
		for name, p := range m.pieces(g.Name()) {
			h.pieces[name] = p
		}
	}
	return h
}

// live is the mode that a GPU must be in for what is used of it, and how much
// that is.
func (h *amdHardware) live(gpuID string) (mode string, used int) {
	for _, p := range h.used {
		if p.gpu == gpuID {
			mode = p.mode
			used++
		}
	}
	return mode, used
}

// use takes a piece into use, which the hardware must allow.
func (h *amdHardware) use(t *testing.T, device string) {
	t.Helper()
	p, ok := h.pieces[device]
	require.True(t, ok, "%s was granted; the hardware has no such piece", device)
	require.NotContains(t, h.used, device, "granted twice")
	if mode, used := h.live(p.gpu); used > 0 {
		require.Equal(t, mode, p.mode, "%s was granted; the GPU is in another mode", device)
	}
	h.used[device] = p
}

func (h *amdHardware) release(grant *allocator.Grant) {
	for _, device := range grant.Devices() {
		delete(h.used, device)
	}
}

// room is how many pieces of a GPU could be had beside what is in use.
func (h *amdHardware) room(gpuID string, wanted func(mode string) bool) int {
	live, used := h.live(gpuID)
	most := 0
	for mode, n := range h.modes {
		if wanted(mode) && (used == 0 || mode == live) {
			most = max(most, n-used)
		}
	}
	return most
}

// fits reports whether so many pieces could be had, of one GPU or of all.
func (h *amdHardware) fits(count int, oneGPU bool, wanted func(mode string) bool) bool {
	sum := 0
	for _, gpuID := range h.gpus {
		n := h.room(gpuID, wanted)
		if oneGPU && n >= count {
			return true
		}
		sum += n
	}
	return !oneGPU && sum >= count
}

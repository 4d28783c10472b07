package inventory

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/filled"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// rosterCase is a roster over looks at a machine.
type rosterCase struct {
	t *testing.T
	*Roster
	boot string
}

func newRosterCase(t *testing.T, path string) *rosterCase {
	t.Helper()
	r, err := OpenRoster(path)
	require.NoError(t, err)
	return &rosterCase{t: t, Roster: r, boot: "boot 1"}
}

var bothTold = []gpu.Vendor{gpu.NVIDIA, gpu.AMD}

// look is one that finds GPUs.
func (c *rosterCase) look(found ...gpu.GPU) (indexes []int, removed []string) {
	c.t.Helper()
	removed = c.Update(nodetest.Quiet(c.t.Context()), found, nil, bothTold, c.boot)
	for i := range found {
		indexes = append(indexes, found[i].Index)
	}
	return indexes, removed
}

func indexed(g gpu.GPU, index int) gpu.GPU {
	g.Index = index
	return g
}

const (
	slot1 = "0000:01:00.0"
	slot2 = "0000:02:00.0"
	slot3 = "0000:03:00.0"
	slot4 = "0000:04:00.0"
)

// A GPU that falls silent keeps its place, and its index, over a restart, whatever the
// driver counts by then.
func TestRosterKeepsSilentGPUs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpus.json")
	c := newRosterCase(t, path)
	amd := nodetest.AMDGPUAt("0000:c1:00.0", "NPS1")
	one, two, three := nodetest.GPUAt(slot1), indexed(nodetest.GPUAt(slot2), 1), indexed(nodetest.GPUAt(slot3), 2)
	c.look(one, two, three, amd)
	assert.Equal(t, []gpu.GPU{one, two, three, amd}, c.All())
	assert.True(t, c.Lost(slot4))

	for range 2 {
		indexes, removed := c.look(one, indexed(three, 1), amd)
		assert.Equal(t, []int{0, 2, 0}, indexes)
		assert.Empty(t, removed)
		assert.Equal(t, []gpu.GPU{one, two, three, amd}, c.All())
		assert.Equal(t, []gpu.GPU{one, three, amd}, c.Answering())
		assert.Equal(t, []gpu.GPU{two}, c.Silent())
		assert.True(t, c.Lost(slot2))
		assert.False(t, c.Lost(slot3))
		c = newRosterCase(t, path)
		assert.Empty(t, c.Answering(), "before the first look")
	}
	indexes, _ := c.look(one, indexed(three, 1), indexed(nodetest.GPUAt(slot4), 2), amd)
	assert.Equal(t, []int{0, 2, 3, 0}, indexes, "a new one has none that another has")
	indexes, _ = c.look(one, two, indexed(three, 2), indexed(nodetest.GPUAt(slot4), 3), amd)
	assert.Equal(t, []int{0, 1, 2, 3, 0}, indexes)
	assert.False(t, c.Lost(slot2))

	again := newRosterCase(t, path)
	assert.Equal(t, c.All(), again.All())
}

// A GPU that is not found after a boot was removed, unless it is not known yet which GPUs
// there are.
func TestRosterForgetsRemovedGPUs(t *testing.T) {
	ctx := nodetest.Quiet(t.Context())
	one, two := nodetest.GPUAt(slot1), indexed(nodetest.GPUAt(slot2), 1)
	for name, test := range map[string]struct {
		boot     string
		problems map[string]gpu.Problem
		told     []gpu.Vendor
		gone     bool
	}{
		"it was removed":              {"boot 2", nil, bothTold, true},
		"no boot since":               {"boot 1", nil, bothTold, false},
		"the driver names it":         {"boot 2", map[string]gpu.Problem{slot1: {Message: "dead"}}, bothTold, false},
		"the driver does not say all": {"boot 2", nil, []gpu.Vendor{gpu.AMD}, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "gpus.json")
			c := newRosterCase(t, path)
			c.Update(ctx, []gpu.GPU{one, two}, nil, bothTold, "boot 1")
			c = newRosterCase(t, path)
			for n := range missedChecks - 1 {
				require.Empty(t, c.Update(ctx, []gpu.GPU{indexed(two, 0)}, test.problems, test.told, test.boot), "look %d", n)
			}
			c.Update(ctx, nil, test.problems, nil, test.boot)
			for n := range missedChecks - 1 {
				require.Empty(t, c.Update(ctx, []gpu.GPU{indexed(two, 0)}, test.problems, test.told, test.boot), "look %d in a row", n)
			}
			removed := c.Update(ctx, []gpu.GPU{indexed(two, 0)}, test.problems, test.told, test.boot)
			if !test.gone {
				assert.Empty(t, removed)
				assert.Len(t, c.All(), 2)
				return
			}
			assert.Equal(t, []string{slot1}, removed)
			assert.Equal(t, 0, c.All()[0].Index, "the driver's count holds again")
			assert.Equal(t, c.All(), newRosterCase(t, path).All())
		})
	}
}

// A file that cannot be read now is read later, and not replaced before.
func TestUnreadableRoster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpus.json")
	newRosterCase(t, path).look(indexed(nodetest.GPUAt(slot1), 0), indexed(nodetest.GPUAt(slot2), 1), indexed(nodetest.GPUAt(slot3), 2))
	require.NoError(t, os.Rename(path, path+".away"))
	require.NoError(t, os.Mkdir(path, 0o700)) // reading it fails, also for root
	r, err := OpenRoster(path)
	require.ErrorContains(t, err, "read which GPUs the node has from "+path)
	c := &rosterCase{t: t, Roster: r, boot: "boot 1"}
	c.look(indexed(nodetest.GPUAt(slot2), 0), indexed(nodetest.GPUAt(slot4), 1))
	assert.Len(t, c.All(), 2)
	require.DirExists(t, path)

	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Rename(path+".away", path))
	c.look(indexed(nodetest.GPUAt(slot2), 0), indexed(nodetest.GPUAt(slot4), 1))
	for _, all := range [][]gpu.GPU{c.All(), newRosterCase(t, path).All()} {
		require.Len(t, all, 4)
		for i, address := range []string{slot1, slot2, slot3, slot4} {
			assert.Equal(t, address, all[i].PCIAddress)
			assert.Equal(t, i, all[i].Index, "GPU %s does not get the index of one that is silent", address)
		}
	}
}

func TestBrokenRoster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpus.json")
	require.NoError(t, os.WriteFile(path, []byte("["), 0o600))
	r, err := OpenRoster(path)
	require.ErrorContains(t, err, "read which GPUs the node has from "+path)
	c := &rosterCase{t: t, Roster: r}
	c.look(nodetest.GPUAt(slot1))
	assert.Len(t, newRosterCase(t, path).All(), 1)
	require.NoError(t, os.WriteFile(path, []byte(`{"version":1,"gpus":[null,{}]}`), 0o600))
	assert.Empty(t, newRosterCase(t, path).All())

	c.file.Path = t.TempDir()
	c.look(nodetest.GPUAt(slot1), nodetest.GPUAt(slot2))
	assert.Len(t, c.All(), 2, "it is known although it cannot be written down")
}

// Every key of the file, as it stays.
func TestRosterFormat(t *testing.T) {
	var c rosterGPU
	filled.Value(&c)
	c.unknown = durable.Unknown{"later": json.RawMessage(`{"a":1}`)}
	path := filepath.Join(t.TempDir(), "gpus.json")
	r, err := OpenRoster(path)
	require.NoError(t, err)
	r.gpus[c.PCIAddress] = &c
	r.save(t.Context())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	golden.JSON(t, "testdata/gpus.json", data)
	again, err := OpenRoster(path)
	require.NoError(t, err)
	assert.Equal(t, r.gpus, again.gpus)

	// The keys of a newer version stay while it is the same GPU.
	changed := c.GPU
	changed.DriverVersion = "other"
	again.Update(t.Context(), []gpu.GPU{changed}, nil, nil, "")
	assert.Equal(t, c.unknown, again.gpus[c.PCIAddress].unknown)
	changed.UUID = "other"
	again.Update(t.Context(), []gpu.GPU{changed}, nil, nil, "")
	assert.Empty(t, again.gpus[c.PCIAddress].unknown)
}

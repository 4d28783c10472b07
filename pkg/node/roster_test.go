package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/simulate/nvdriver"
)

// rosterCase is a roster over looks at a machine.
type rosterCase struct {
	t *testing.T
	*roster
	boot string
}

func newRosterCase(t *testing.T, path string) *rosterCase {
	t.Helper()
	r, err := openRoster(path)
	require.NoError(t, err)
	return &rosterCase{t: t, roster: r, boot: "boot 1"}
}

var bothTold = []gpu.Vendor{gpu.NVIDIA, gpu.AMD}

// look is one that finds GPUs.
func (c *rosterCase) look(found ...gpu.GPU) (indexes []int, removed []string) {
	c.t.Helper()
	removed = c.update(quiet(c.t.Context()), found, nil, bothTold, c.boot)
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
	amd := amdGPUAt("0000:c1:00.0", "NPS1")
	one, two, three := gpuAt(slot1), indexed(gpuAt(slot2), 1), indexed(gpuAt(slot3), 2)
	c.look(one, two, three, amd)
	assert.Equal(t, []gpu.GPU{one, two, three, amd}, c.all())
	assert.True(t, c.lost(slot4))

	for range 2 {
		indexes, removed := c.look(one, indexed(three, 1), amd)
		assert.Equal(t, []int{0, 2, 0}, indexes)
		assert.Empty(t, removed)
		assert.Equal(t, []gpu.GPU{one, two, three, amd}, c.all())
		assert.Equal(t, []gpu.GPU{one, three, amd}, c.answering())
		assert.True(t, c.lost(slot2))
		assert.False(t, c.lost(slot3))
		c = newRosterCase(t, path)
		assert.Empty(t, c.answering(), "before the first look")
	}
	indexes, _ := c.look(one, indexed(three, 1), indexed(gpuAt(slot4), 2), amd)
	assert.Equal(t, []int{0, 2, 3, 0}, indexes, "a new one has none that another has")
	indexes, _ = c.look(one, two, indexed(three, 2), indexed(gpuAt(slot4), 3), amd)
	assert.Equal(t, []int{0, 1, 2, 3, 0}, indexes)
	assert.False(t, c.lost(slot2))

	again := newRosterCase(t, path)
	assert.Equal(t, c.all(), again.all())
}

// What is not found after a boot was taken out, unless it is not known yet which GPUs
// there are.
func TestRosterForgetsRemovedGPUs(t *testing.T) {
	ctx := quiet(t.Context())
	one, two := gpuAt(slot1), indexed(gpuAt(slot2), 1)
	for name, test := range map[string]struct {
		boot     string
		problems map[string]string
		told     []gpu.Vendor
		gone     bool
	}{
		"it was taken out":            {"boot 2", nil, bothTold, true},
		"no boot since":               {"boot 1", nil, bothTold, false},
		"the driver names it":         {"boot 2", map[string]string{slot1: "dead"}, bothTold, false},
		"the driver does not say all": {"boot 2", nil, []gpu.Vendor{gpu.AMD}, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "gpus.json")
			c := newRosterCase(t, path)
			c.update(ctx, []gpu.GPU{one, two}, nil, bothTold, "boot 1")
			c = newRosterCase(t, path)
			for n := range goneLooks - 1 {
				require.Empty(t, c.update(ctx, []gpu.GPU{indexed(two, 0)}, test.problems, test.told, test.boot), "look %d", n)
			}
			c.update(ctx, nil, test.problems, nil, test.boot)
			for n := range goneLooks - 1 {
				require.Empty(t, c.update(ctx, []gpu.GPU{indexed(two, 0)}, test.problems, test.told, test.boot), "look %d in a row", n)
			}
			removed := c.update(ctx, []gpu.GPU{indexed(two, 0)}, test.problems, test.told, test.boot)
			if !test.gone {
				assert.Empty(t, removed)
				assert.Len(t, c.all(), 2)
				return
			}
			assert.Equal(t, []string{slot1}, removed)
			assert.Equal(t, 0, c.all()[0].Index, "the driver's count holds again")
			assert.Equal(t, c.all(), newRosterCase(t, path).all())
		})
	}
}

func TestBrokenRoster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpus.json")
	require.NoError(t, os.WriteFile(path, []byte("["), 0o600))
	r, err := openRoster(path)
	require.ErrorContains(t, err, "read which GPUs the node has from "+path)
	c := &rosterCase{t: t, roster: r}
	c.look(gpuAt(slot1))
	assert.Len(t, newRosterCase(t, path).all(), 1)
	require.NoError(t, os.WriteFile(path, []byte("[null, {}]"), 0o600))
	assert.Empty(t, newRosterCase(t, path).all())

	c.path = t.TempDir()
	c.look(gpuAt(slot1), gpuAt(slot2))
	assert.Len(t, c.all(), 2, "it is known although it cannot be written down")
}

// A rule that counts GPUs does not go over to another one when a GPU falls silent;
// the GPU follows the profile when it answers again, and is counted no more when it was
// taken out.
func TestLostGPUKeepsItsPlace(t *testing.T) {
	s := steer(newMachine(t, newAPI()))
	_, stop := s.start()
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	shared := snapshot(t, "shared", "[{gpus: {count: 1}, sharing: {replicas: 4}}, {sharing: {replicas: 2}}]")
	require.Equal(t, v1alpha1.TaskDone, s.ask(v1alpha1.Applying, nothing, shared).Phase)
	awaitReplicas(t, s.api, card1+"-fraction-share", 500)

	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, nvdriver.Faults{Lost: []string{"0000:1b:00.0"}}))
	s.await("the lost GPU is not noticed", func(r *v1alpha1.NodeReport) bool { return r.GPUs[0].Problem != "" })
	cut := snapshot(t, "cut", "[{gpus: {count: 1}, mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}}]")
	both := snapshot(t, "both", "[{gpus: {count: 2}, mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}}]")
	for range 2 {
		awaitReplicas(t, s.api, card1+"-fraction-share", 500)
		task := s.ask(v1alpha1.Planning, shared, cut)
		require.Equal(t, v1alpha1.TaskPlanned, task.Phase, task.Message)
		assert.Empty(t, task.Changes, "the rule has gone over to the other GPU")
		task = s.ask(v1alpha1.Planning, shared, both)
		require.Equal(t, v1alpha1.TaskPlanned, task.Phase, task.Message)
		require.Len(t, task.Changes, 1)
		assert.Equal(t, card1, task.Changes[0].GPU)
		stop()
		_, stop = s.start()
	}
	require.Equal(t, v1alpha1.TaskDone, s.ask(v1alpha1.Applying, shared, cut).Phase)
	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, nvdriver.Faults{}))
	require.Eventually(t, func() bool { return len(s.partitions()) == 7 }, patience, tick, "it does not follow the profile")

	stop()
	s.write("inventories/two.yaml", "gpus: [{model: H100-80GB, pci: [\"0000:43:00.0\"]}]\n")
	require.NoError(t, os.RemoveAll(s.simulated.Root))
	_, stop = s.start()
	defer stop()
	require.Eventually(t, func() bool {
		r, err := openRoster(s.config.rosterFile())
		return err == nil && len(r.all()) == 1
	}, patience, tick, "a GPU that was taken out is counted for ever")
	task := s.ask(v1alpha1.Planning, cut, snapshot(t, "halves", "[{gpus: {count: 1}, mig: {mode: Static, partitions: [{profile: 3g.40gb, count: 2}]}}]"))
	require.Equal(t, v1alpha1.TaskPlanned, task.Phase, task.Message)
	require.Len(t, task.Changes, 1)
	assert.Equal(t, card1, task.Changes[0].GPU)
}

package share

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/filled"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/nodetest"
)

const sharedGPU = "0000:01:00.0"

// sharingCase is a GPU that is shared, and what claims hold of it.
type sharingCase struct {
	*State
	t    *testing.T
	api  *fake.Clientset
	held []gpu.Placement
	err  error
}

func newSharingCase(t *testing.T, path string) *sharingCase {
	t.Helper()
	api := nodetest.NewAPI()
	node, err := api.CoreV1().Nodes().Get(t.Context(), nodetest.NodeName, metav1.GetOptions{})
	require.NoError(t, err)
	c := &sharingCase{t: t, api: api}
	events, err := telemetry.OpenEvents(nodetest.Quiet(context.Background()), api, node)
	require.NoError(t, err)
	t.Cleanup(events.Close)
	c.State, err = OpenState(path, StateConfig{
		Events: events,
		Held:   func(context.Context, string) ([]gpu.Placement, error) { return c.held, c.err },
		HeldBy: func(string) string { return "; held" },
	})
	require.NoError(t, err)
	return c
}

// with is settings with so many replicas.
func with(replicas int) profile.Desired {
	c := profile.Default()
	c.Replicas = replicas
	return c
}

// look shares the GPU by time slicing as is wanted, and returns how many replicas it has then.
func (c *sharingCase) look(want profile.Desired) (replicas int, changed bool) {
	c.t.Helper()
	g := nodetest.GPUAt(sharedGPU)
	for i := range g.Placements {
		g.Placements[i].Memory = 80 << 30
	}
	found := []gpu.GPU{g}
	changed = c.AddShares(nodetest.Quiet(c.t.Context()), found, func(*gpu.GPU) profile.Desired { return want })
	for _, p := range found[0].Placements {
		if p.Share != nil {
			assert.Equal(c.t, gpu.TimeSlicing, p.Share.Strategy)
			replicas = p.Share.Replicas
		}
	}
	return replicas, changed
}

func (c *sharingCase) expect(want profile.Desired, replicas int, changed bool) {
	c.t.Helper()
	got, now := c.look(want)
	assert.Equal(c.t, replicas, got)
	assert.Equal(c.t, changed, now)
}

func TestSharingFollowsWhenNothingIsHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sharing.json")
	c := newSharingCase(t, path)
	c.expect(with(4), 4, true)
	c.expect(with(4), 4, false)
	c.held = []gpu.Placement{gpu.ShareOf(nodetest.GPUAt(sharedGPU).Placements[1], gpu.ByMemory, with(4).Sharing)}
	mps := with(4)
	mps.Strategy = gpu.MPS
	c.expect(mps, 4, false)
	c.expect(with(5), 4, false)
	assert.Contains(t, c.Waiting("gpu-0000-01-00-0"), "5 replicas")
	nodetest.AwaitEvent(t, c.api, "SettingsPending", "5 replicas, at most 48 clients: gpu-0000-01-00-0; held")

	// The next plugin goes by what was in force.
	c = newSharingCase(t, path)
	c.held = []gpu.Placement{gpu.ShareOf(nodetest.GPUAt(sharedGPU).Placements[1], gpu.ByMemory, with(4).Sharing)}
	c.expect(with(5), 4, false)
	c.held, c.err = nil, errors.New("the ledger cannot be read")
	c.expect(with(5), 4, false)
	c.err = nil
	c.expect(with(5), 5, true)
	assert.Empty(t, c.Waiting("gpu-0000-01-00-0"))
	nodetest.AwaitEvent(t, c.api, "SettingsApplied", "5 replicas")
}

// The controller tells which profile a node follows; the plugin tells of sharing that
// changes.
func TestAnotherProfileWithTheSameSharing(t *testing.T) {
	of := func(name string, replicas int) profile.Desired {
		c := with(replicas)
		c.Profile = name
		return c
	}
	c := newSharingCase(t, filepath.Join(t.TempDir(), "sharing.json"))
	assert.True(t, alike(of("cpx", 4), of("spx", 4)))
	assert.False(t, alike(of("cpx", 4), of("spx", 5)))
	c.expect(with(4), 4, true)
	c.expect(of("cpx", 4), 4, true)
	c.expect(of("spx", 4), 4, true)
	c.expect(of("spx", 5), 5, true)
	assert.Contains(t, nodetest.AwaitEvent(t, c.api, "SettingsApplied", ""), "5 replicas", "the first that is told")
}

// Without the file, what is held tells how it is shared.
func TestSharingIsRememberedByWhatIsHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sharing.json")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err := OpenState(path, StateConfig{})
	require.ErrorContains(t, err, "read how the GPUs are shared from "+path)
	require.NoError(t, os.Remove(path))

	c := newSharingCase(t, path)
	c.held = []gpu.Placement{gpu.ShareOf(nodetest.GPUAt(sharedGPU).Placements[1], gpu.ByMemory, with(7).Sharing)}
	c.expect(with(5), 7, true)
	c.held = nil
	c.expect(with(5), 5, true)
}

// A file that cannot be read now is read later, and not replaced before.
func TestSettingsThatCannotBeReadYet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sharing.json")
	other := newSharingCase(t, path)
	other.set("0000:02:00.0", with(3)) // of a GPU that is silent
	other.expect(with(4), 4, true)
	require.NoError(t, os.Rename(path, path+".away"))
	c := newSharingCase(t, path)
	require.NoError(t, os.Mkdir(path, 0o700)) // reading it fails, also for root
	var err error
	c.State, err = OpenState(path, c.StateConfig)
	require.ErrorContains(t, err, "read how the GPUs are shared from "+path)
	c.expect(with(5), 5, true)
	require.DirExists(t, path)

	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Rename(path+".away", path))
	c.held = []gpu.Placement{gpu.ShareOf(nodetest.GPUAt(sharedGPU).Placements[1], gpu.ByMemory, with(4).Sharing)}
	c.expect(with(5), 4, true)
	silent, known := c.LookUp("0000:02:00.0")
	assert.True(t, known)
	assert.Equal(t, 3, silent.Replicas)
}

// What cannot be published is told once, with what to do.
func TestSharesThatCannotBePublished(t *testing.T) {
	c := newSharingCase(t, filepath.Join(t.TempDir(), "sharing.json"))
	c.expect(with(0), 0, true)
	assert.Contains(t, nodetest.AwaitEvent(t, c.api, "SharesNotPublished", ""), "has 0 replicas")
	c.expect(with(3), 3, true)
}

func TestDescribeSettings(t *testing.T) {
	mps := profile.Default()
	mps.Strategy, mps.Limits, mps.Profile, mps.ExtendedResource.Device = gpu.MPS, true, "training", v1beta1.DeviceGPUReplica
	off := profile.Default()
	off.Shared = false
	parts := off
	parts.Partitions, parts.TimeSlice, parts.ExtendedResource = []string{"3g.40gb"}, gpu.LongSlice, v1beta1.ExtendedResource{Device: v1beta1.DevicePartition, Profile: "1g.10gb"}
	kernel := profile.Default()
	kernel.KernelLimits, kernel.Limits, kernel.MaxMemoryLimitPercent, kernel.MIGReplicas = true, true, 150, true
	kernel.Partitions, kernel.PartitionReplicas = []string{"1g.10gb", "2g.20gb"}, map[string]int{"2g.20gb": 4}
	for want, c := range map[string]profile.Desired{
		"the whole GPU and partitions 1g.10gb, 2g.20gb shared by TimeSlicing, 10 replicas, at most 48 clients, 4 replicas of 2g.20gb, memory limits up to 150 % of requests, memory of whole GPUs limited by the kernel driver, nvidia.com/mig-<profile> is a replica": kernel,
		"the whole GPU shared by MPS, 10 replicas, at most 48 clients, memory of whole GPUs limited by MPS, the vendor's extended resource is a replica of the whole GPU (profile training)":                                                                           mps,
		"not shared": off,
		"partitions 3g.40gb shared by TimeSlicing, 10 replicas, at most 48 clients, time slices Long, the vendor's extended resource is a partition 1g.10gb": parts,
	} {
		assert.Equal(t, want, describe(c))
	}
}

// Settings count as the same if they say the same, whatever profile they come from.
func TestAlike(t *testing.T) {
	a, b := with(4), with(4)
	b.Profile = "training"
	assert.True(t, alike(a, b))
	assert.False(t, alike(a, with(5)))
}

// Without a State, and of a GPU that is not known, nothing is shared otherwise than by default.
func TestSettingsThatAreNotKnown(t *testing.T) {
	var none *State
	assert.Equal(t, profile.Default(), none.Of(sharedGPU))
	c := newSharingCase(t, filepath.Join(t.TempDir(), "sharing.json"))
	assert.Zero(t, c.Of(sharedGPU))
	c.set(sharedGPU, with(4))
	assert.Equal(t, with(4), c.Of(sharedGPU))
	for i, isNew := range []bool{true, false, true, true} {
		assert.Equal(t, isNew, c.First("gpu-0", []string{"a", "a", "b", "a"}[i]), "what is said of it has changed")
	}
	assert.Empty(t, c.Waiting("gpu-0"))
	c.setWaiting("gpu-0", "not shared")
	assert.Equal(t, "not shared", c.Waiting("gpu-0"))
}

func TestProbesGrowRarer(t *testing.T) {
	var intervals []time.Duration
	last := time.Duration(0)
	for range 6 {
		last = nextInterval(last)
		intervals = append(intervals, last)
	}
	assert.Equal(t, []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute}, intervals)
}

// Every key of the file, as it stays.
func TestStateFormat(t *testing.T) {
	var in settings
	filled.Value(&in)
	in.unknown = durable.Unknown{"later": json.RawMessage(`{"a":1}`)}
	path := filepath.Join(t.TempDir(), "sharing.json")
	c := newSharingCase(t, path)
	c.inForce[sharedGPU] = in
	c.set("0000:02:00.0", profile.Default())
	c.save(t.Context())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	golden.JSON(t, "testdata/sharing.json", data)
	assert.Equal(t, c.inForce, newSharingCase(t, path).inForce)
}

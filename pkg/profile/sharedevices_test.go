package profile_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// firstGPU is the first GPU of a built-in inventory.
func firstGPU(t *testing.T, name string) *gpu.GPU {
	t.Helper()
	inv, err := models.LoadInventory(name)
	require.NoError(t, err)
	g := inv.Hardware("node-a")[0]
	return &g
}

func with(change func(*profile.Desired)) profile.Desired {
	c := profile.Default()
	c.Profile = "default"
	change(&c)
	return c
}

func unchanged(*profile.Desired) {}

// names are those of the devices without the GPU's.
func names(g *gpu.GPU, devices []gpu.Placement) []string {
	out := []string{}
	for _, d := range devices {
		out = append(out, d.Name()[len(g.Name()):])
	}
	return out
}

func TestDevices(t *testing.T) {
	ofWhole := []string{"-memory-share", "-fraction-share"}
	for name, test := range map[string]struct {
		inventory string
		settings  profile.Desired
		want      []string
	}{
		"by default":                          {"h100x8", with(unchanged), ofWhole},
		"AMD, by default":                     {"mi300x8", with(unchanged), ofWhole},
		"a GPU with no MIG":                   {"l4x4", with(unchanged), ofWhole},
		"a GPU that does not tell its memory": {"gb10x1", with(unchanged), []string{"-fraction-share"}},
		"not shared":                          {"h100x8", profile.Desired{}, []string{}},
		"for one client":                      {"h100x8", with(func(c *profile.Desired) { c.Replicas, c.MaxClients = 1, 1 }), ofWhole},
		"partitions": {"h100x8", with(func(c *profile.Desired) { c.Partitions = []string{"3g.40gb"} }),
			[]string{"-mig-3g-40gb-4-memory-share", "-mig-3g-40gb-0-memory-share", "-memory-share", "-fraction-share"}},
		"partitions in the order of the settings, by fraction too, and no whole GPUs": {"h100x8",
			with(func(c *profile.Desired) {
				c.Shared, c.PartitionBases = false, gpu.Bases()
				c.Partitions = []string{"4g.40gb", "3g.40gb"}
			}),
			[]string{"-mig-4g-40gb-0-memory-share", "-mig-4g-40gb-0-fraction-share",
				"-mig-3g-40gb-4-memory-share", "-mig-3g-40gb-4-fraction-share",
				"-mig-3g-40gb-0-memory-share", "-mig-3g-40gb-0-fraction-share"}},
		"partitions, by fraction alone": {"h100x8", with(func(c *profile.Desired) {
			c.Shared, c.Partitions, c.PartitionBases = false, []string{"4g.40gb"}, []gpu.Basis{gpu.ByFraction}
		}),
			[]string{"-mig-4g-40gb-0-fraction-share"}},
		"a mode": {"mi300x8", with(func(c *profile.Desired) { c.Partitions = []string{"dpx"} }),
			[]string{"-dpx-0-memory-share", "-dpx-1-memory-share", "-memory-share", "-fraction-share"}},
		"profiles that are no partitions, or of another vendor": {"mi300x8",
			with(func(c *profile.Desired) { c.Partitions = []string{"spx", "3g.40gb"} }), ofWhole},
		"a profile twice": {"mi300x8", with(func(c *profile.Desired) { c.Shared, c.Partitions = false, []string{"dpx", "dpx"} }),
			[]string{"-dpx-0-memory-share", "-dpx-1-memory-share"}},
		"a variant": {"h100x8", with(func(c *profile.Desired) { c.Partitions = []string{"1g.10gb+me"} }), ofWhole},
	} {
		t.Run(name, func(t *testing.T) {
			g := firstGPU(t, test.inventory)
			devices, err := test.settings.ShareDevices(g, true)
			require.NoError(t, err)
			assert.Equal(t, test.want, names(g, devices))
		})
	}
}

// In a memory mode that an AMD GPU has cut only, there is no whole GPU to share.
func TestNoWholeGPU(t *testing.T) {
	g := firstGPU(t, "mi300x8")
	var cut []gpu.Placement
	for _, p := range g.Placements {
		if p.Type != gpu.TypeGPU {
			cut = append(cut, p)
		}
	}
	g.Placements = cut
	devices, err := with(func(c *profile.Desired) { c.Partitions = []string{"cpx"} }).ShareDevices(g, false)
	require.NoError(t, err)
	assert.Len(t, devices, 8)
	for _, d := range devices {
		assert.Equal(t, gpu.TypeXCP, d.Share.Of)
	}
}

// What a share says of itself, and what is left of the memory to share.
func TestWhatSharesAre(t *testing.T) {
	mps := with(func(c *profile.Desired) { c.Strategy, c.Replicas, c.TimeSlice = gpu.MPS, 4, "" })
	long := with(func(c *profile.Desired) {
		c.TimeSlice, c.FailRequestsGreaterThanOne, c.MaxMemoryLimitPercent = gpu.LongSlice, true, 200
	})
	for name, test := range map[string]struct {
		inventory string
		settings  profile.Desired
		limits    bool
		kept      int64 // in MiB
		isolation gpu.Isolation
		slice     gpu.TimeSlice
	}{
		"limits, a daemon for each claim":     {"h200x8", long, true, 10 * 66, gpu.IsolationCooperative, gpu.LongSlice},
		"limits, a daemon for the GPU":        {"h200x8", mps, true, 66, gpu.IsolationCooperative, ""},
		"no limits":                           {"h200x8", long, false, 0, gpu.IsolationNone, gpu.LongSlice},
		"MPS that does not work":              {"h200x8", mps, false, 0, gpu.IsolationNone, ""},
		"a GPU that does not tell its memory": {"gb10x1", long, true, 0, gpu.IsolationNone, gpu.LongSlice},
		"AMD":                                 {"mi300x8", long, true, 0, gpu.IsolationNone, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := firstGPU(t, test.inventory)
			whole, ok := g.Placement(g.Name())
			require.True(t, ok)
			devices, err := test.settings.ShareDevices(g, test.limits)
			require.NoError(t, err)
			bases := gpu.Bases()
			if whole.Memory == 0 {
				bases = []gpu.Basis{gpu.ByFraction}
			}
			require.Len(t, devices, len(bases))
			for i, by := range bases {
				d := devices[i]
				assert.Equal(t, gpu.TypeShare, d.Type)
				assert.Equal(t, by, d.Share.By)
				assert.Equal(t, test.isolation, d.Isolation)
				assert.Equal(t, (whole.Memory>>20-test.kept)<<20, d.Memory)
				assert.Equal(t, whole.Consumes, d.Consumes)
				want := test.settings.Sharing
				want.TimeSlice, want.Limits = test.slice, test.isolation == gpu.IsolationCooperative
				if !want.Limits {
					want.MaxMemoryLimitPercent = 0 // of a limit that nothing enforces
				}
				assert.Equal(t, want, d.Share.Sharing)
			}
			assert.True(t, g.Conflict(devices[0], devices[len(devices)-1]) || len(devices) == 1, "memory and fraction shares are never on one GPU")
			assert.True(t, g.Conflict(devices[0], whole))
			assert.False(t, g.Conflict(devices[0], devices[0]))
		})
	}
}

// Where the kernel driver limits memory, time-slicing needs no MPS, and its servers take no memory.
func TestSharesLimitedByTheKernel(t *testing.T) {
	g := firstGPU(t, "h100x8")
	for strategy, want := range map[gpu.Strategy]struct {
		isolation gpu.Isolation
		mps       bool
	}{
		gpu.TimeSlicing: {gpu.IsolationKernel, false},
		gpu.MPS:         {gpu.IsolationCooperative, true},
	} {
		shares, err := with(func(c *profile.Desired) { c.Strategy, c.KernelLimits, c.MaxMemoryLimitPercent = strategy, true, 200 }).ShareDevices(g, true)
		require.NoError(t, err)
		require.Len(t, shares, 2)
		whole, _ := g.Placement(g.Name())
		for _, s := range shares {
			assert.Equal(t, want.isolation, s.Isolation)
			assert.True(t, s.Share.KernelLimits, "both have the limit")
			assert.Equal(t, 200, s.Share.MaxMemoryLimitPercent)
			assert.Equal(t, want.mps, s.Share.Limits)
			assert.Equal(t, want.mps, s.Memory < whole.Memory/gpu.MiB*gpu.MiB)
		}
	}
	shares, err := with(func(c *profile.Desired) { c.KernelLimits = true }).ShareDevices(firstGPU(t, "mi300x8"), true)
	require.NoError(t, err)
	assert.Equal(t, gpu.IsolationUntested, shares[0].Isolation)
	shares, err = with(func(c *profile.Desired) { c.KernelLimits = true }).ShareDevices(firstGPU(t, "gb10x1"), true)
	require.NoError(t, err)
	assert.Equal(t, gpu.IsolationNone, shares[0].Isolation, "the amount is not known")
}

// Shares of partitions only take turns, whatever holds for the whole GPU.
func TestSharesOfPartitions(t *testing.T) {
	g := firstGPU(t, "h100x8")
	devices, err := with(func(c *profile.Desired) {
		c.Partitions, c.TimeSlice, c.MaxClients = []string{"3g.40gb", "7g.80gb"}, gpu.ShortSlice, 7
		c.PartitionReplicas = map[string]int{"7g.80gb": 20}
	}).ShareDevices(g, true)
	require.NoError(t, err)
	d := devices[0]
	base, ok := g.Placement(d.Base().Name())
	require.True(t, ok)
	assert.Equal(t, gpu.IsolationNone, d.Isolation)
	assert.Equal(t, gpu.Sharing{Strategy: gpu.TimeSlicing, Replicas: 10, MaxClients: 7}, d.Share.Sharing)
	assert.Equal(t, base.Memory>>20<<20, d.Memory)
	assert.Equal(t, gpu.Sharing{Strategy: gpu.TimeSlicing, Replicas: 20, MaxClients: 20}, devices[2].Share.Sharing, "each replica takes a client")
	assert.Equal(t, gpu.IsolationCooperative, devices[3].Isolation, "the whole GPU's")
}

func TestDevicesThatCannotBe(t *testing.T) {
	for name, test := range map[string]struct {
		inventory string
		change    func(*profile.Desired)
		memory    int64 // of the whole GPU, if another than its own; negative: that of partitions is not known
		want      string
		left      []string
	}{
		"MPS on AMD": {"mi300x8", func(c *profile.Desired) { c.Strategy = gpu.MPS }, 0,
			`shares it by strategy MPS, which only NVIDIA's GPUs support: no shares of it are published; add a rule with strategy TimeSlicing for the GPUs of AMD`, []string{}},
		"MPS on a GPU that does not tell its memory": {"gb10x1", func(c *profile.Desired) { c.Strategy = gpu.MPS }, 0,
			`the driver does not tell how much memory gpu-000f-01-00-0 has, so shares of it cannot have limits: it is not shared; choose the strategy TimeSlicing`, []string{}},
		"no replicas": {"h100x8", func(c *profile.Desired) { c.Replicas = 0 }, 0,
			`profile "default" has 0 replicas, and a GPU can have from 1 to 1000`, []string{}},
		"too many replicas": {"h100x8", func(c *profile.Desired) { c.Replicas = 1001 }, 0,
			`profile "default" has 1001 replicas, and a GPU can have from 1 to 1000`, []string{}},
		"no clients": {"h100x8", func(c *profile.Desired) { c.MaxClients = 0 }, 0,
			`profile "default" allows 0 clients, and a share takes one`, []string{}},
		"no memory left": {"h100x8", func(c *profile.Desired) { c.Partitions = []string{"4g.40gb"} }, 663 << 20,
			`GPU gpu-0000-1b-00-0: gpu-0000-1b-00-0 has 3 MiB to share besides the memory of MPS servers (660 MiB), too little for the 10 replicas of profile "default": it is not shared`,
			[]string{"-mig-4g-40gb-0-memory-share"}},
		"partitions that do not tell their memory": {"h100x8", func(c *profile.Desired) { c.Partitions = []string{"4g.40gb"} }, -1,
			`the driver does not tell how much memory gpu-0000-1b-00-0-mig-4g-40gb-0 has`, []string{"-memory-share", "-fraction-share"}},
		"no memory at all": {"h100x8", func(*profile.Desired) {}, 1,
			`has 0 MiB to share besides the memory of MPS servers (660 MiB)`, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			g := firstGPU(t, test.inventory)
			for i := range g.Placements {
				if p := &g.Placements[i]; test.memory > 0 && p.Type == gpu.TypeGPU {
					p.Memory = test.memory
				} else if test.memory < 0 && p.Type == gpu.TypeMIG {
					p.Memory = 0
				}
			}
			devices, err := with(test.change).ShareDevices(g, true)
			require.ErrorContains(t, err, test.want)
			assert.Equal(t, test.left, names(g, devices))
		})
	}
}

// An H100 of which every plain profile is shared on both bases has as many devices
// as the API allows. With one more cut, shares of partitions are left out.
func TestTooManyDevices(t *testing.T) {
	g := firstGPU(t, "h100x8")
	wanted := with(func(c *profile.Desired) {
		c.PartitionBases = gpu.Bases()
		c.Partitions = []string{"1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"}
	})
	devices, err := wanted.ShareDevices(g, true)
	require.NoError(t, err)
	require.Equal(t, profile.MaxDevices, len(devices)+len(g.Placements))

	more := g.Placements[0]
	more.Profile = "1g.10gb+gfx"
	g.Placements = append(g.Placements, more)
	devices, err = wanted.ShareDevices(g, true)
	require.EqualError(t, err, `GPU gpu-0000-1b-00-0: with the shares that profile "default" wants of its partitions `+
		`(1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb) it has 65 devices, and the API allows 64 for a GPU: `+
		`no shares of its partitions are published; share fewer profiles`)
	assert.Equal(t, []string{"-memory-share", "-fraction-share"}, names(g, devices))

	for len(g.Placements) < profile.MaxDevices-1 {
		g.Placements = append(g.Placements, more)
	}
	devices, err = with(unchanged).ShareDevices(g, true)
	require.ErrorContains(t, err, `with its shares by profile "default" it has 65 devices, and the API allows 64 for a GPU: no shares of it are published`)
	assert.Empty(t, devices)
}

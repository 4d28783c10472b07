package overview_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/scenes"
)

func TestParseAsk(t *testing.T) {
	memory := func(bytes int64) overview.Ask {
		return overview.Ask{By: gpu.ByMemory, Amount: gpu.Amount{Memory: bytes}}
	}
	fraction := func(n int64) overview.Ask { return overview.Ask{By: gpu.ByFraction, Amount: gpu.Amount{Fraction: n}} }
	for typed, want := range map[string]overview.Ask{
		"8Gi": memory(8 << 30), " 8 GiB ": memory(8 << 30), "8gi of memory": memory(8 << 30), "1GB": memory(954 << 20), "1k": memory(1 << 20), "1048.577k": memory(2 << 20), "0.5Gi": memory(512 << 20),
		"0.5": fraction(500), ".25": fraction(250), "50%": fraction(500), "12.5 %": fraction(125), "1/4": fraction(250), "1": fraction(1000), "fraction 0.5": fraction(500), "0.5 of a GPU": fraction(500),
		"share": fraction(0), "a replica": fraction(0), "memory share": memory(0), "gpu share": fraction(0), "4 clients": {By: gpu.ByFraction, Amount: gpu.Amount{Clients: 4}},
		"3g.40gb memory share":                   {By: gpu.ByMemory, Profile: "3g.40gb"},
		"10Gi of a partition 3g.40gb":            {By: gpu.ByMemory, Profile: "3g.40gb", Amount: gpu.Amount{Memory: 10 << 30}},
		"share of dpx":                           {By: gpu.ByFraction, Profile: "dpx"},
		"1Pi, 100% of compute, 1 client":         {By: gpu.ByMemory, Amount: gpu.Amount{Memory: 1 << 50, Compute: 100, Clients: 1}},
		"20Gi of memory, 50% of compute":         {By: gpu.ByMemory, Amount: gpu.Amount{Memory: 20 << 30, Compute: 50}},
		"4 clients, 0.5 of 1g.10gb, compute 40%": {By: gpu.ByFraction, Profile: "1g.10gb", Amount: gpu.Amount{Fraction: 500, Compute: 40, Clients: 4}},
	} {
		got, share, err := overview.ParseAsk(typed)
		require.NoError(t, err, typed)
		assert.True(t, share, typed)
		assert.Equal(t, want, got, typed)
	}
	for typed, want := range map[string]string{
		"1/3":                  "1/3 is not a multiple of 0.001: ask for 0.333",
		"0.000000001":          "0.000000001 is not a multiple of 0.001: ask for 0.001",
		"share, 8Gi":           "a share has one amount: of memory, or a fraction",
		"0":                    "0 is no fraction above 0 and up to 1",
		"150%":                 "150% is no fraction above 0 and up to 1",
		"1/0":                  "1/0 is no fraction above 0 and up to 1",
		"0Gi":                  "a share has at least 1Mi of memory",
		"999999999P":           "999999999P is more memory than any GPU has",
		"1025Ti":               "1025Ti is more memory than any GPU has",
		"1.001":                "1.001 is no fraction above 0 and up to 1",
		"8Gi, 0.5":             "a share has one amount: of memory, or a fraction",
		"8Gi, 0 clients":       "a share has at least 1 client",
		"8Gi, 101% of compute": "101% of compute is more than 100% of compute",
		"8":                    "8 has no unit: type an amount of memory with one, such as 8Gi, or a fraction of a GPU up to 1, such as 0.5",
	} {
		_, share, err := overview.ParseAsk(typed)
		assert.True(t, share, typed)
		assert.EqualError(t, err, want, typed)
	}
	for _, typed := range []string{"", "1g.10gb", "whole GPU", "cpx", "<script>", "8Gi, please", "of"} {
		_, share, _ := overview.ParseAsk(typed)
		assert.False(t, share, typed)
	}
}

func FuzzParseAsk(f *testing.F) {
	for _, s := range []string{"8Gi", "0.5 of 3g.40gb", "1/3", "50%, 4 clients", "3g.40gb memory share, compute 40"} {
		f.Add(s)
	}
	shared := snapshot(scenes.Shared())
	f.Fuzz(func(t *testing.T, typed string) {
		ask, share, err := overview.ParseAsk(typed)
		if !share || err != nil {
			return
		}
		assert.Contains(t, gpu.Bases(), ask.By)
		assert.False(t, ask.Memory < 0 || ask.Memory%gpu.MiB != 0 || ask.Memory > 1<<51, "%+v", ask)
		assert.False(t, ask.Fraction < 0 || ask.Fraction > 1000 || ask.Compute < 0 || ask.Compute > 100 || ask.Clients < 0, "%+v", ask)
		assert.False(t, ask.Memory > 0 && ask.Fraction > 0, "%+v", ask)
		assert.NotPanics(t, func() { overview.RoomFor(shared, typed) })
	})
}

func TestRoomForShares(t *testing.T) {
	s := snapshot(scenes.Shared())
	assert.False(t, overview.RoomFor(s, "8Gi").Known, "no kinds are known")
	s.Kinds = []overview.Kind{{Label: "memory share", By: gpu.ByMemory, Class: "some-class"}, {Label: "dpx memory share", By: gpu.ByMemory, Profile: "dpx"}}
	r := overview.RoomFor(s, "8Gi, 50% of compute")
	require.True(t, r.Known)
	assert.Contains(t, r.Claim, "name: share-8gi-of-memory-50-of-compute\n")
	assert.Contains(t, r.Claim, "deviceClassName: some-class\n            capacity:\n              requests:\n                computePercent: \"50\"\n                memory: \"8Gi\"\n---")
	assert.Equal(t, 3, r.Count, "one beside 10.3Gi of 23Gi and half of compute, two on the GPU that nobody has")
	assert.Contains(t, overview.RoomFor(s, "8Gi of dpx").Claim, "gpu-partition-memory-share.tranche.dev\n            capacity")
	assert.Equal(t, "8 has no unit: type an amount of memory with one, such as 8Gi, or a fraction of a GPU up to 1, such as 0.5", overview.RoomFor(s, "8").Wrong)
	s.Partial = true
	assert.True(t, overview.RoomFor(s, "8Gi").Uncertain)
}

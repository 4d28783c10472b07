package steps

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

func TestAmountOf(t *testing.T) {
	untold := claims.FractionShare(0)
	untold.Memory = 0
	for name, tt := range map[string]struct {
		device gpu.Placement
		taken  []string
		want   gpu.Amount
	}{
		"memory":                  {claims.MemoryShare(0), []string{"memory", "2000Mi"}, gpu.Amount{Memory: 2000 << 20, Clients: 1}},
		"all memory":              {claims.MemoryShare(0), []string{"memory", "80Gi"}, gpu.Amount{Memory: 80 * claims.GiB, Clients: 1}},
		"with the driver's name":  {claims.MemoryShare(0), []string{"gpu.tranche.dev/memory", "1Gi"}, gpu.Amount{Memory: claims.GiB, Clients: 1}},
		"everything":              {claims.MemoryShare(0), []string{"memory", "1Gi", "computePercent", "30", "clients", "4"}, gpu.Amount{Memory: claims.GiB, Compute: 30, Clients: 4}},
		"compute by default":      {claims.MemoryShare(0), []string{"memory", "1Gi", "computePercent", "0"}, gpu.Amount{Memory: claims.GiB, Clients: 1}},
		"no compute there":        {claims.MIGShare(0), []string{"memory", "1Gi", "computePercent", "0"}, gpu.Amount{Memory: claims.GiB, Clients: 1}},
		"half":                    {claims.FractionShare(0), []string{"fraction", "0.5"}, gpu.Amount{Fraction: 500, Memory: 40 * claims.GiB, Clients: 1}},
		"the whole":               {claims.FractionShare(0), []string{"fraction", "1"}, gpu.Amount{Fraction: 1000, Memory: 80 * claims.GiB, Clients: 1}},
		"a third, as the default": {claims.FractionShare(0), []string{"fraction", "333m"}, gpu.Amount{Fraction: 333, Memory: 27279 << 20, Clients: 1}}, // 81920 MiB × 0.333 = 27279.36
		"memory is not told":      {untold, []string{"fraction", "0.1"}, gpu.Amount{Fraction: 100, Clients: 1}},
		"more digits, down":       {claims.FractionShare(0), []string{"fraction", "0.3337"}, gpu.Amount{Fraction: 333, Memory: 27279 << 20, Clients: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := amountOf(tt.device, new(claims.ShareResult("r", tt.device, tt.taken...)))
			require.NoError(t, err)
			assert.Equal(t, &tt.want, got)
		})
	}
}

func TestAmountOfRefuses(t *testing.T) {
	one := claims.MemoryShare(0)
	one.Share.FailRequestsGreaterThanOne = true
	tiny := claims.FractionShare(0)
	tiny.Memory = 500 << 20
	for name, tt := range map[string]struct {
		device  gpu.Placement
		taken   []string
		message string
	}{
		"nothing said":          {claims.MemoryShare(0), nil, "does not say of how much: the scheduler must run with the feature DRAConsumableCapacity"},
		"of something else":     {claims.MemoryShare(0), []string{"clients", "1"}, "the allocation does not say how much of its memory the claim has"},
		"0 bytes":               {claims.MemoryShare(0), []string{"memory", "0"}, "was allocated 0 of its memory, which must be more than 0 and at most 80Gi"},
		"negative memory":       {claims.MemoryShare(0), []string{"memory", "-1Gi"}, "was allocated -1Gi of its memory"},
		"more than the GPU":     {claims.MemoryShare(0), []string{"memory", "81Gi"}, "was allocated 81Gi of its memory"},
		"more than anything":    {claims.MemoryShare(0), []string{"memory", "9E"}, "was allocated 9E of its memory"},
		"less than a mebibyte":  {claims.MemoryShare(0), []string{"memory", "1000k"}, "was allocated 1000000 bytes of its memory, and less than 1Mi cannot be shared"},
		"fraction 0":            {claims.FractionShare(0), []string{"fraction", "0"}, "was allocated 0 of its fraction, which must be more than 0 and at most 1"},
		"fraction -0.5":         {claims.FractionShare(0), []string{"fraction", "-0.5"}, "was allocated -500m of its fraction"},
		"fraction 1.5":          {claims.FractionShare(0), []string{"fraction", "1.5"}, "was allocated 1500m of its fraction"},
		"fraction 1.0001":       {claims.FractionShare(0), []string{"fraction", "1.0001"}, "of its fraction"},
		"fraction of next to 0": {claims.FractionShare(0), []string{"fraction", "0.0004"}, "of its fraction, which must be more than 0"},
		"a fraction of little":  {tiny, []string{"fraction", "0.001"}, "was allocated 0 bytes of its memory"},
		"memory of fraction":    {claims.FractionShare(0), []string{"memory", "1Gi"}, "does not say how much of its fraction"},
		"compute 101":           {claims.MemoryShare(0), []string{"memory", "1Gi", "computePercent", "101"}, "was allocated 101 of its computePercent, which must be more than 0 and at most 100"},
		"compute -1":            {claims.MemoryShare(0), []string{"memory", "1Gi", "computePercent", "-1"}, "was allocated -1 of its computePercent"},
		"compute, no limits":    {claims.MIGShare(0), []string{"memory", "1Gi", "computePercent", "10"}, "was allocated 10 of its computePercent, which must be more than 0 and at most 0"},
		"no clients":            {claims.MemoryShare(0), []string{"memory", "1Gi", "clients", "0"}, "was allocated 0 of its clients"},
		"too many clients":      {claims.MemoryShare(0), []string{"memory", "1Gi", "clients", "49"}, "was allocated 49 of its clients, which must be more than 0 and at most 48"},
		"a second client":       {one, []string{"memory", "1Gi", "clients", "2"}, "at most 1"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := amountOf(tt.device, new(claims.ShareResult("r", tt.device, tt.taken...)))
			require.ErrorContains(t, err, tt.message)
			require.ErrorContains(t, err, "device "+tt.device.Name())
			assert.Nil(t, got)
		})
	}
}

// A share without an ID is one of an allocation that counted nothing.
func TestAmountOfWithoutShareID(t *testing.T) {
	for _, id := range []*types.UID{nil, new(types.UID(""))} {
		r := claims.ShareResult("r", claims.MemoryShare(0), "memory", "1Gi")
		r.ShareID = id
		_, err := amountOf(claims.MemoryShare(0), &r)
		require.ErrorContains(t, err, "does not say of how much")
	}
}

func TestAllocatedShares(t *testing.T) {
	gpus := claims.GPUs(1)
	claims.OfferShares(gpus)
	whole, part := claims.ShareResult("w", claims.MemoryShare(0), "memory", "1Gi"), claims.ShareResult("p", claims.MIGShare(0), "memory", "2Gi")
	got, err := Allocated(claims.Of("a", whole, part), claims.Node, gpus)
	require.NoError(t, err)
	assert.Equal(t, *whole.ShareID, got[0].ShareID)
	assert.False(t, got[0].Made, "nobody makes a GPU")
	assert.True(t, got[1].Made, "of a share, what is shared is made")
	assert.EqualValues(t, 2*claims.GiB, got[1].Amount.Memory)

	bad := claims.Of("a", resourceapi.DeviceRequestAllocationResult{Request: "r", Driver: names.DriverName, Pool: whole.Pool, Device: whole.Device})
	_, err = Allocated(bad, claims.Node, gpus)
	require.ErrorContains(t, err, "is a share, but the allocation does not say of how much")
}

// A share asked of a node that offers none.
func TestAllocatedShareThatIsGone(t *testing.T) {
	_, err := Allocated(claims.ShareClaim("a", claims.MemoryShare(0), "1Gi"), claims.Node, claims.GPUs(1))
	require.ErrorContains(t, err, "device gpu-0000-01-00-0-memory-share does not exist on GPU gpu-0000-01-00-0: the GPU")
}

// However a quantity is written, what is read of it is never more than it is.
func FuzzAmountOf(f *testing.F) {
	for _, seed := range []string{"1", "0.5", "333m", "-1", "1e3", "80Gi", "9E", "0.0005", "1n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, device := range []gpu.Placement{claims.MemoryShare(0), claims.FractionShare(0)} {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return
			}
			r := claims.ShareResult("r", device)
			r.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{resourceapi.QualifiedName(device.Share.By): q}
			got, err := amountOf(device, &r)
			if err != nil {
				assert.Nil(t, got)
				continue
			}
			assert.Empty(t, over(device, *got))
			assert.GreaterOrEqual(t, got.Memory, int64(gpu.MiB))
			assert.LessOrEqual(t, got.Memory, device.Memory)
			assert.LessOrEqual(t, float64(got.Fraction), q.AsApproximateFloat64()*gpu.WholeFraction*1.000001)
		}
	})
}

func TestLeastOf(t *testing.T) {
	assert.Equal(t, &gpu.Amount{Memory: gpu.MiB, Clients: 1}, LeastOf(claims.MemoryShare(0)))
	untold := claims.FractionShare(0)
	untold.Memory = 0
	assert.Equal(t, &gpu.Amount{Fraction: 1, Clients: 1}, LeastOf(untold))
}

package publish_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/short"
)

const (
	memoryShare       = "gpu-memory-share.tranche.dev"
	fractionShare     = "gpu-fraction-share.tranche.dev"
	partMemoryShare   = "gpu-partition-memory-share.tranche.dev"
	partFractionShare = "gpu-partition-fraction-share.tranche.dev"
)

// amounts are what a claim names, by capacity.
type amounts map[string]string

func requestOf(class string, a amounts) resourceapi.DeviceRequest {
	request := allocator.Request("device", class, 1)
	if len(a) > 0 {
		request.Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{}}
		for name, q := range a {
			request.Exactly.Capacity.Requests[resourceapi.QualifiedName(name)] = resource.MustParse(q)
		}
	}
	return request
}

// shareNode is what the GPUs of a node allow, worked out from the devices' own
// rules: what takes of the same counters excludes each other, except for shares of
// one device, whose amounts must fit. It asks no allocator.
type shareNode struct {
	gpus []publish.GPU
	// devices are those of all GPUs, by name.
	devices map[string]nodeDevice
	// held is what claims have, by the name of the device: for shares one entry a
	// claim, for all others one without amounts.
	held map[string][]amountsInUnits
}

// nodeDevice is a device of a GPU.
type nodeDevice struct {
	gpu.Placement
	gpu *publish.GPU
}

func newShareNode(gpus []publish.GPU) *shareNode {
	n := &shareNode{gpus: gpus, devices: map[string]nodeDevice{}, held: map[string][]amountsInUnits{}}
	for i := range gpus {
		for _, p := range gpus[i].Placements {
			n.devices[p.Name()] = nodeDevice{p, &gpus[i]}
		}
	}
	return n
}

// amountsInUnits is what a claim has by capacity: bytes, thousandths, percent and
// clients.
type amountsInUnits map[string]int64

func inUnits(consumed map[resourceapi.QualifiedName]resource.Quantity) amountsInUnits {
	got := amountsInUnits{}
	for name, q := range consumed {
		got[string(name)] = q.Value()
		if name == "fraction" {
			got[string(name)] = q.MilliValue()
		}
	}
	return got
}

// of works out what a share has when a claim names these amounts.
func (n *shareNode) of(p gpu.Placement, a amounts) amountsInUnits {
	got := amountsInUnits{"clients": 1}
	replicas := int64(p.Share.Replicas)
	switch p.Share.By {
	case gpu.ByMemory:
		got["memory"] = p.Memory / replicas >> 20 << 20
	case gpu.ByFraction:
		got["fraction"] = 1000 / replicas
	}
	if p.Share.Limits {
		got["computePercent"] = 0
	}
	for name, text := range a {
		q := resource.MustParse(text)
		if _, ok := got[name]; !ok {
			return nil // the device has no such capacity
		}
		switch name {
		case "fraction":
			got[name] = q.MilliValue()
		case "memory":
			got[name] = (q.Value() + 1<<20 - 1) >> 20 << 20
		default:
			got[name] = q.Value()
		}
	}
	return got
}

// limits is what all claims together can have of a share.
func limits(p gpu.Placement) amountsInUnits {
	return amountsInUnits{"memory": p.Memory, "fraction": 1000, "computePercent": 100, "clients": int64(p.Share.MaxClients)}
}

// fits reports whether a device can be given to one more claim.
func (n *shareNode) fits(g *publish.GPU, p gpu.Placement, a amounts) bool {
	sum := gpu.Counters{}
	for name := range n.held {
		if other := n.devices[name]; other.gpu == g && name != p.Name() {
			sum.Add(other.Consumes)
		}
	}
	sum.Add(p.Consumes)
	if sum.Exceeds(g.Counters) != "" {
		return false
	}
	if p.Share == nil {
		return len(n.held[p.Name()]) == 0
	}
	wanted := n.of(p, a)
	if wanted == nil || p.Share.FailRequestsGreaterThanOne && wanted["clients"] > 1 {
		return false
	}
	for name, limit := range limits(p) {
		for _, other := range n.held[p.Name()] {
			limit -= other[name]
		}
		if wanted[name] > limit {
			return false
		}
	}
	return true
}

// free is the first device that a claim could get, in the order in which the
// scheduler should try them.
func (n *shareNode) free(meets func(gpu.Placement) bool, a amounts) string {
	for i := range n.gpus {
		for _, p := range n.gpus[i].Placements {
			if meets(p) && n.fits(&n.gpus[i], p, a) {
				return p.Name()
			}
		}
	}
	return ""
}

// use takes a device into use, with what the scheduler says that the claim has.
func (n *shareNode) use(t *testing.T, result resourceapi.DeviceRequestAllocationResult, a amounts) {
	t.Helper()
	d, ok := n.devices[result.Device]
	require.True(t, ok, "no such device: %s", result.Device)
	p := d.Placement
	require.True(t, n.fits(d.gpu, p, a), "%s was granted beside %v", result.Device, n.held)
	if p.Share == nil {
		n.held[result.Device] = []amountsInUnits{{}}
		require.Empty(t, result.ConsumedCapacity)
		return
	}
	require.NotNil(t, result.ShareID)
	got := inUnits(result.ConsumedCapacity)
	require.Equal(t, n.of(p, a), got, "what a share of %s has", result.Device)
	n.held[result.Device] = append(n.held[result.Device], got)
}

func (n *shareNode) release(grant *allocator.Grant) {
	result := grant.Result.Devices.Results[0]
	holders := n.held[result.Device]
	given := inUnits(result.ConsumedCapacity)
	i := slices.IndexFunc(holders, func(h amountsInUnits) bool { return maps.Equal(h, given) })
	n.held[result.Device] = slices.Delete(slices.Clone(holders), i, i+1)
	if len(n.held[result.Device]) == 0 {
		delete(n.held, result.Device)
	}
}

// shareWish is what a claim asks for.
type shareWish struct {
	class   string
	amounts amounts
	meets   func(gpu.Placement) bool
}

func randomShareWish(random *rand.Rand) shareWish {
	share := func(by gpu.Basis, whole bool) func(gpu.Placement) bool {
		return func(p gpu.Placement) bool {
			return p.Share != nil && p.Share.By == by && (p.Share.Of == gpu.TypeGPU) == whole
		}
	}
	a := amounts{}
	maybe := func(name string, values ...string) {
		if random.IntN(3) == 0 {
			a[name] = values[random.IntN(len(values))]
		}
	}
	maybe("clients", "1", "2", "20", "48")
	if random.IntN(3) == 0 {
		maybe("computePercent", "0", "10", "60", "100")
	}
	memories := []string{"1Mi", "300M", "5Gi", "20Gi", "79Gi", "180Gi", "500Gi"}
	fractions := []string{"1m", "0.1", "0.333", "0.5", "1"}
	switch random.IntN(8) {
	case 0:
		return shareWish{wholeGPU, nil, func(p gpu.Placement) bool { return p.Type == gpu.TypeGPU }}
	case 1:
		return shareWish{anyPartition, nil, func(p gpu.Placement) bool { return p.Type == gpu.TypeMIG || p.Type == gpu.TypeXCP }}
	case 2, 3:
		maybe("memory", memories...)
		return shareWish{memoryShare, a, share(gpu.ByMemory, true)}
	case 4, 5:
		maybe("fraction", fractions...)
		return shareWish{fractionShare, a, share(gpu.ByFraction, true)}
	case 6:
		maybe("memory", memories...)
		return shareWish{partMemoryShare, a, share(gpu.ByMemory, false)}
	}
	maybe("fraction", fractions...)
	return shareWish{partFractionShare, a, share(gpu.ByFraction, false)}
}

// TestRandomShares plays random orders of claims for whole GPUs, partitions and
// shares of both against the scheduler's allocator. Whatever is granted fits on
// the GPU by its counters and in the device by its amounts, a claim waits only
// when nothing would fit, and what it gets is the first that does.
func TestRandomShares(t *testing.T) {
	one := everyShare("3g.40gb", "1g.20gb")
	one.FailRequestsGreaterThanOne = true
	for name, gpus := range map[string][]publish.GPU{
		"2 x H100":             withShares(t, gpusOf(t, machineOf(t, "H100-80GB", 2)), everyShare("3g.40gb", "1g.20gb")),
		"2 x H100, one client": withShares(t, gpusOf(t, machineOf(t, "H100-80GB", 2)), one),
		"A100 that is cut":     withShares(t, gpusOf(t, machineOf(t, "A100-80GB", 1)), everyShare("3g.40gb", "2g.20gb")),
		"2 x L4":               withShares(t, gpusOf(t, machineOf(t, "L4-24GB", 2)), profile.Default()),
		"2 x MI300X":           withShares(t, amdMachines[0].gpus(t, 2), everyShare("cpx", "dpx")),
		"of both vendors":      withShares(t, gpusOf(t, builtIn(t, "h100x2-mi300x2")), everyShare("1g.10gb", "dpx")),
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(short.Of(1, 3)) {
				playShares(t, clusterOf(t, gpus), newShareNode(gpus), rand.New(rand.NewPCG(seed, 1)))
			}
		})
	}
}

func playShares(t *testing.T, c *cluster, n *shareNode, random *rand.Rand) {
	t.Helper()
	together := 0
	c.play(random, 400, func(step int) *allocator.Grant {
		w := randomShareWish(random)
		want := n.free(w.meets, w.amounts)
		grant := c.ask(requestOf(w.class, w.amounts))
		if grant == nil {
			require.Empty(t, want, "step %d: a claim of %s for %v waits beside %v", step, w.class, w.amounts, n.held)
			return nil
		}
		result := grant.Result.Devices.Results[0]
		require.Equal(t, want, result.Device, "step %d: a claim of %s for %v beside %v", step, w.class, w.amounts, n.held)
		n.use(t, result, w.amounts)
		if len(n.held[result.Device]) > 1 {
			together++
		}
		return grant
	}, n.release)
	require.NotZero(t, together, "nothing was ever shared: the test is too short")
}

// TestSharesFillAGPU: as many shares that name no amount as there are replicas
// fill a GPU, and only then the next is used. On a GPU with shares of one basis
// nothing else has room.
func TestSharesFillAGPU(t *testing.T) {
	for model, gpus := range map[string][]publish.GPU{
		"H100":   withShares(t, gpusOf(t, machineOf(t, "H100-80GB", 2)), profile.Default()),
		"MI300X": withShares(t, amdMachines[0].gpus(t, 2), profile.Default()),
	} {
		for class, suffix := range map[string]string{memoryShare: "-memory-share", fractionShare: "-fraction-share"} {
			t.Run(model+suffix, func(t *testing.T) {
				c := clusterOf(t, gpus)
				var want []string
				for _, g := range gpus {
					want = append(want, slices.Repeat([]string{g.Name() + suffix}, profile.DefaultReplicas)...)
				}
				assert.Equal(t, want, c.fill(class))

				c.scheduler.ReleaseAll()
				require.NotNil(t, c.one(class))
				other := map[string]string{memoryShare: fractionShare, fractionShare: memoryShare}[class]
				assert.Equal(t, []string{gpus[1].Name()}, c.fill(wholeGPU), "beside one share")
				assert.Nil(t, c.one(other))
				assert.Nil(t, c.one(anyPartition))
			})
		}
	}
}

// TestClientsRunOut: a device has so many clients for all its shares together, and
// the next share goes to another GPU.
func TestClientsRunOut(t *testing.T) {
	gpus := withShares(t, gpusOf(t, machineOf(t, "H100-80GB", 2)), profile.Default())
	c := clusterOf(t, gpus)
	small := amounts{"memory": "1Mi"}
	devices := map[string]int{}
	for grant := c.ask(requestOf(memoryShare, small)); grant != nil; grant = c.ask(requestOf(memoryShare, small)) {
		devices[grant.Devices()[0]]++
	}
	assert.Equal(t, map[string]int{gpus[0].Name() + "-memory-share": 48, gpus[1].Name() + "-memory-share": 48}, devices)
	c.scheduler.ReleaseAll()
	assert.NotNil(t, c.ask(requestOf(fractionShare, amounts{"fraction": "0.1", "clients": "48"})))
	assert.Equal(t, gpus[1].Name()+"-fraction-share", c.one(fractionShare).Devices()[0])
	assert.Nil(t, c.ask(requestOf(fractionShare, amounts{"clients": "49"})), "more than a GPU has")
}

// TestSharesOfAProfile: a claim picks the profile by a selector.
func TestSharesOfAProfile(t *testing.T) {
	gpus := withShares(t, gpusOf(t, machineOf(t, "H100-80GB", 1)), everyShare("1g.10gb", "3g.40gb"))
	c := clusterOf(t, gpus)
	request := requestOf(partMemoryShare, amounts{"memory": "20000Mi"})
	request.Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
		Expression: `device.attributes["gpu.tranche.dev"].profile == "3g.40gb"`,
	}}}
	var got []string
	for grant := c.ask(request); grant != nil; grant = c.ask(request) {
		got = append(got, strings.TrimPrefix(grant.Devices()[0], gpus[0].Name()))
	}
	four, zero := "-mig-3g-40gb-4-memory-share", "-mig-3g-40gb-0-memory-share"
	assert.Equal(t, []string{four, four, zero, zero}, got)
	assert.NotNil(t, c.ask(requestOf(partMemoryShare, amounts{"memory": "400Mi", "clients": "3"})), "what is left of one")
}

package publisher

import (
	"context"
	"regexp"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// What the taints of an earlier run show and is over has an event once. What goes on, or is not known, has
// none.
func TestEndedWhileNoPluginRan(t *testing.T) {
	const address1, address2 = "0000:01:00.0", "0000:02:00.0"
	found := []gpu.GPU{nodetest.GPUAt(address1), nodetest.GPUAt(address2)}
	type state func(*publishing)
	obstacle := func(kind gpu.ObstacleKind, devices ...string) state {
		return func(p *publishing) {
			p.obstacles = map[string][]gpu.Obstacle{}
			for _, d := range devices {
				p.obstacles[address1] = append(p.obstacles[address1], gpu.Obstacle{Placement: d, Kind: kind})
			}
		}
	}
	fine := func(*publishing) {}
	failed := func(p *publishing) {
		p.failures = map[string][]gpu.Obstacle{address1: {{Placement: gpu1, Kind: gpu.ObstacleFailed}}}
	}
	unhealthy := func(p *publishing) { p.GPUs.Trouble(address1, gpu.Problem{Message: "XID 79"}) }
	upgrading := func(p *publishing) { p.Drivers.CannotUse(gpu.NVIDIA, nil, &inventory.UpgradeError{}) }
	served := func(p *publishing) {
		for _, g := range found {
			p.GPUs.MarkPublished(g.PCIAddress)
		}
		p.owners = pluginOwner
	}
	busy := obstacle(gpu.ObstacleBusy, gpu1)
	const healthyGPU, devicesWork, noLongerBusy, driverFound, ownerGone = "GPUHealthy " + gpu1, "DevicesWork " + gpu1, "GPUNoLongerBusy " + gpu1, "DriverFound NVIDIA", "OtherSystemGone NVIDIA"
	for name, tt := range map[string]struct {
		before, now state
		want        []string
	}{
		"nothing":                                {fine, fine, nil},
		"unhealthy":                              {unhealthy, fine, []string{healthyGPU}},
		"still unhealthy":                        {unhealthy, unhealthy, nil},
		"unhealthy, now upgrading":               {unhealthy, upgrading, nil},
		"unhealthy, a device still fails":        {unhealthy, failed, nil},
		"a device failed":                        {failed, fine, []string{devicesWork}},
		"a device still fails":                   {failed, failed, nil},
		"a partition was missing":                {obstacle(gpu.ObstacleMissing, gpu1), fine, []string{devicesWork}},
		"a partition is still missing":           {obstacle(gpu.ObstacleMissing, gpu1), obstacle(gpu.ObstacleMissing, gpu1), nil},
		"busy":                                   {busy, fine, []string{noLongerBusy}},
		"still busy":                             {busy, busy, nil},
		"busy, now unhealthy":                    {busy, unhealthy, nil},
		"busy, now a device fails":               {busy, failed, []string{noLongerBusy}},
		"upgrading":                              {upgrading, fine, []string{driverFound}},
		"still upgrading":                        {upgrading, upgrading, nil},
		"upgraded, and one GPU is unhealthy now": {upgrading, unhealthy, []string{driverFound}},
		"another system":                         {served, fine, []string{ownerGone}},
		"still another system":                   {served, served, nil},
		"unhealthy and served":                   {func(p *publishing) { unhealthy(p); served(p) }, fine, []string{healthyGPU, ownerGone}},
	} {
		t.Run(name, func(t *testing.T) {
			earlier := newPublishing(t)
			tt.before(earlier)
			earlier.SetOwners(t.Context(), earlier.owners)
			p := newPublishing(t)
			tt.now(p)
			ctx, ended := endings(t)
			p.Adopt(ctx, publish.Objects(names.DriverName, nodetest.NodeName, earlier.sent[len(earlier.sent)-1]))
			p.SetOwners(ctx, p.owners)
			p.Publish(ctx)
			assert.Equal(t, tt.want, *ended)
		})
	}
}

// endings returns a context whose events that tell an end are kept, each with its GPU or vendor. The
// recorder sends them later and in any order, so they are taken from the log, which has each at once.
func endings(t *testing.T) (ctx context.Context, all *[]string) {
	t.Helper()
	all = new([]string)
	event := regexp.MustCompile(`"event"="(\w+)"`)
	about := regexp.MustCompile(gpu1 + "|" + gpu2 + "|NVIDIA")
	return klog.NewContext(t.Context(), funcr.New(func(_, line string) {
		if found := event.FindStringSubmatch(line); found != nil && found[1] != names.EventOtherSystem {
			*all = append(*all, found[1]+" "+about.FindString(line))
		}
	}, funcr.Options{})), all
}

package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// dieBefore kills this process before its n-th step: nothing is undone, no file
// is flushed, no lock is given back by hand.
func dieBefore(n int) func(context.Context, ledger.Record, *steps.Step) {
	var taken atomic.Int64
	return func(context.Context, ledger.Record, *steps.Step) {
		if taken.Add(1) == int64(n)+1 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until the signal arrives
		}
	}
}

// crashCase is a claim in whose life the plugin dies.
type crashCase struct {
	name    string
	devices []string
	// rival overlaps with the claim's first device.
	rival string
	// partitions is what exists on NVIDIA GPUs while the claim is prepared, mode
	// what the first AMD GPU is in.
	partitions []string
	mode       string
	// twice: other cases have its steps, too.
	twice bool
	// brief leaves out the aftermaths that are about the hardware: what the case adds
	// is none.
	brief   bool
	machine func(*testing.T, *fake.Clientset) *machine
}

var crashCases = []crashCase{
	{name: "two partitions", devices: []string{small0, card1 + "-mig-3g-40gb-0"}, rival: card0 + "-mig-3g-40gb-4", twice: true, partitions: []string{small0, card1 + "-mig-3g-40gb-0"}, machine: newMachine},
	{name: "whole GPU", devices: []string{card0}, rival: small0, machine: newMachine},
	{name: "AMD partition and whole AMD GPU", devices: []string{cpx3, amdCard1}, rival: dpx0, twice: true, mode: "CPX", machine: newAMDMachine},
	{name: "halves of two GPUs, by one daemon", devices: []string{fraction0, card1 + "-fraction-share"}, rival: small0, brief: true, machine: newMPSMachine},
	{name: "share of a partition", devices: []string{halfShare0}, rival: card0 + "-mig-1g-10gb-0", partitions: []string{half0}, brief: true, machine: newSharedMachine},
	{name: "partitions of both vendors", devices: []string{small0, cpx3}, rival: amdCard0, partitions: []string{small0}, mode: "CPX", machine: newMixedMachine},
}

// aftermath is what happens between the death and the end of the claim.
type aftermath struct {
	name string
	// meanwhile happens while there is no plugin.
	meanwhile func(*machine)
	// gone: nobody asks for the claim again.
	gone bool
	// hardware: it is about the hardware.
	hardware bool
}

var aftermaths = []aftermath{
	{name: "restart", meanwhile: func(*machine) {}},
	{name: "claim deleted", gone: true, meanwhile: func(m *machine) {
		require.NoError(m.t, m.api.ResourceV1().ResourceClaims("team").Delete(m.t.Context(), "claim-a", metav1.DeleteOptions{}))
	}},
	{name: "reboot", hardware: true, meanwhile: func(m *machine) {
		reboot := amdgpu.Reboot
		if len(m.inventory().GPUs) > 0 {
			reboot = nvdriver.Reboot // of all GPUs
		}
		require.NoError(m.t, reboot(m.simulated.Root))
	}},
	{name: "driver reload", hardware: true, meanwhile: func(m *machine) {
		if len(m.inventory().GPUs) > 0 {
			require.NoError(m.t, nvdriver.ReloadDriver(m.simulated.Root))
		}
		if len(m.inventory().AMD) > 0 {
			require.NoError(m.t, amdgpu.ReloadDriver(m.simulated.Root))
		}
	}},
}

// aftermathsOf lists what happens after a death at the n-th point of a case: everything, or each in turn
// at every fourth point, not the same in each case.
func aftermathsOf(number, n int) []aftermath {
	c := crashCases[number]
	all := slices.DeleteFunc(slices.Clone(aftermaths), func(a aftermath) bool { return c.brief && a.hardware })
	switch {
	case !testing.Short():
		return all
	case (n+number)%4 == 0:
		return []aftermath{all[n/4%len(all)]}
	default:
		return nil
	}
}

// tally counts what the matrix found.
type tally struct{ points, leaks, doubleGrants atomic.Int64 }

// The plugin is a process that is killed before and after every step of Prepare
// and of Unprepare (after one is before the next; after the last there is one
// more point, before the answer). Whatever comes next, nothing is leaked and
// nothing is allocated twice.
func TestCrashMatrix(t *testing.T) {
	start := time.Now()
	var count tally
	for number, c := range crashCases {
		if testing.Short() && c.twice {
			continue
		}
		var prepare, all []string
		skipped := false
		t.Run("plan of "+c.name, func(t *testing.T) {
			t.Run("orderly", func(t *testing.T) {
				defer func() { skipped = t.Skipped() }()
				prepare, all = orderlySteps(t, c)
			})
		})
		if skipped {
			continue // the machine needs root
		}
		require.NotEmpty(t, prepare)
		t.Run(c.name, func(t *testing.T) {
			for n, point := range all {
				for _, then := range aftermathsOf(number, n) {
					t.Run(fmt.Sprintf("%02d %s, %s", n, point, then.name), func(t *testing.T) {
						crashAt(t, c, n, n < len(prepare), then, &count)
					})
				}
			}
		})
	}
	t.Logf("crash matrix: %d points tried in %s, %d leaks, %d double grants",
		count.points.Load(), time.Since(start).Round(time.Millisecond), count.leaks.Load(), count.doubleGrants.Load())
	assert.Zero(t, count.leaks.Load())
	assert.Zero(t, count.doubleGrants.Load())
}

// orderlySteps lists the points of an undisturbed life of a claim, as the plan
// has them.
func orderlySteps(t *testing.T, c crashCase) (prepare, all []string) {
	m := c.machine(t, nodetest.NewAPI())
	var mu sync.Mutex
	m.config.beforeStep = func(_ context.Context, _ ledger.Record, step *steps.Step) {
		mu.Lock()
		defer mu.Unlock()
		name := "before the answer"
		if step != nil {
			name = fmt.Sprintf("before %s %d", step.Op, step.Device)
		}
		all = append(all, name)
	}
	k, stop := m.start()
	a := nodetest.Allocate(t, m.api, "a", c.devices...)
	k.mustPrepare(a)
	prepare = append(prepare, all...)
	require.Empty(t, k.unprepare(a))
	stop()
	m.nothingHeld()
	return prepare, all
}

// crashAt lets the plugin die at one point of a claim's life and looks at what
// follows.
func crashAt(t *testing.T, c crashCase, n int, inPrepare bool, then aftermath, count *tally) {
	m := c.machine(t, nodetest.NewAPI())
	count.points.Add(1)
	a := nodetest.Allocate(t, m.api, "a", c.devices...)
	m.dieAt(a, n)
	then.meanwhile(m)
	if then.gone {
		m.config.reconcileInterval = time.Second // what fails because a call took long is retried
	}

	k, _ := m.start()
	if then.gone {
		assert.Eventually(t, m.idle, nodetest.Patience, nodetest.Tick, "what a deleted claim held is not released")
		m.countLeaks(count)
		k.works(nodetest.Allocate(t, m.api, "b", c.rival))
		return
	}
	// Somebody else asks for an overlapping device before the kubelet comes back
	// to the first claim. The scheduler would not do so; it must not matter.
	held := len(m.records()) > 0
	b := nodetest.Allocate(t, m.api, "b", c.rival)
	if k.granted(b) {
		if held {
			count.doubleGrants.Add(1)
			assert.Fail(t, "allocated twice", "%s was prepared while the ledger had claim a", c.rival)
		}
		require.Empty(t, k.unprepare(b))
	}
	if inPrepare {
		if answer := k.prepare(a)["a"]; answer.Error != "" {
			count.leaks.Add(1) // its own leftovers are in its way
			require.Fail(t, "the next Prepare fails", answer.Error)
		}
		m.requirePrepared(c)
		if k.granted(b) {
			count.doubleGrants.Add(1)
			assert.Fail(t, "allocated twice", "%s was prepared beside claim a", c.rival)
		}
	}
	require.Empty(t, k.unprepare(a))
	m.countLeaks(count)
	k.works(b)
}

// dieAt runs the plugin as a process, which is killed at the n-th point of the
// claim's life.
func (m *machine) dieAt(c *resourceapi.ResourceClaim, n int) {
	m.t.Helper()
	process := m.startProcess(child{Claim: c, DieBefore: n})
	m.t.Cleanup(func() { _ = process.Process.Kill() })
	k := m.register()
	ctx, cancel := context.WithTimeout(context.Background(), nodetest.Patience)
	defer cancel()
	refs := []*drapb.Claim{refTo(c)}
	_, err := k.dra.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: refs})
	if err == nil {
		_, err = k.dra.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: refs})
	}
	require.Error(m.t, err, "the plugin has not died")
	var exit *exec.ExitError
	require.ErrorAs(m.t, process.Wait(), &exit)
	require.Equal(m.t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
}

// granted tries for a moment to prepare a claim, and reports whether it got its
// device. Prepare waits for late releases; the kubelet's own time would be 45 s.
func (k *fakeKubelet) granted(c *resourceapi.ResourceClaim) bool {
	k.m.t.Helper()
	ctx, cancel := context.WithTimeout(k.m.t.Context(), 200*time.Millisecond)
	defer cancel()
	answer, err := k.dra.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{refTo(c)}})
	granted := err == nil && answer.Claims[string(c.UID)].Error == ""
	if !granted {
		// It may have been just too slow to say so.
		require.Empty(k.m.t, k.unprepare(c))
	}
	return granted
}

// requirePrepared checks that hardware, ledger and CDI file agree on claim a.
func (m *machine) requirePrepared(c crashCase) {
	m.t.Helper()
	require.ElementsMatch(m.t, c.partitions, m.partitions())
	records := m.records()
	require.Len(m.t, records, 1)
	require.Equal(m.t, ledger.Prepared, records[0].State)
	require.Len(m.t, records[0].Devices, len(c.devices))
	for _, d := range records[0].Devices {
		require.Contains(m.t, m.spec("a"), d.Name)
		if d.Made {
			require.NotEmpty(m.t, d.UUID)
		}
		require.Contains(m.t, m.spec("a"), d.UUID)
	}
	if c.mode != "" {
		require.Equal(m.t, c.mode, m.mode())
	}
}

// idle reports whether neither the GPUs nor the folders know of a claim.
func (m *machine) idle() bool {
	return len(m.files(filepath.Join(m.config.DataDir(), "claims"), "*.json"))+len(m.files(m.config.CDIDir, "*.json")) == 0 &&
		len(m.runningDaemons())+len(m.partitions()) == 0
}

// countLeaks counts what is left of a released claim. On a busy machine, a call that was left behind
// may hold a GPU when the claim is released: the next checks finish the release.
func (m *machine) countLeaks(count *tally) {
	m.t.Helper()
	if !assert.Eventually(m.t, m.idle, nodetest.Patience, nodetest.Tick, "what a released claim held is left") {
		count.leaks.Add(1)
	}
	m.nothingHeld()
}

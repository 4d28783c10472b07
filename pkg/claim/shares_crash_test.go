package claim

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

// crashCase is a share claim that is prepared or released amid some others.
type crashCase struct {
	device gpu.Placement
	// before is how many others hold a share when it begins.
	before int
	// slow makes the first Join fail because its daemon is not ready.
	slow bool
}

func crashCases() map[string]crashCase {
	cases := map[string]crashCase{}
	for what, device := range map[string]gpu.Placement{"gpu": claims.MemoryShare(0), "partition": claims.MIGShare(0)} {
		for before, holder := range []string{"only", "second", "third"} {
			for _, slow := range []bool{false, true} {
				cases[fmt.Sprintf("%s holder of a %s, slow %t", holder, what, slow)] = crashCase{device, before, slow}
			}
		}
	}
	return cases
}

// others are the claims that are there already.
func (c crashCase) others() []*resourceapi.ResourceClaim {
	var others []*resourceapi.ResourceClaim
	for n := range c.before {
		others = append(others, claims.ShareClaim(fmt.Sprint("other-", n), c.device, "10Gi"))
	}
	return others
}

// mine takes more than half, so that it is there once.
func (c crashCase) mine() *resourceapi.ResourceClaim { return claims.ShareClaim("a", c.device, "50Gi") }

func (c crashCase) start(t *testing.T) (*place, *Manager) {
	p := newPlace(t, 1).offerShares()
	p.shares.slow = c.slow
	m := p.start()
	for _, other := range c.others() {
		mustPrepare(t, m, other)
	}
	return p, m
}

// finish releases what is left, and checks that nothing is.
func (c crashCase) finish(t *testing.T, p *place, m *Manager) {
	t.Helper()
	assert.Len(t, p.shares.holders(), c.before, "the others have what they had")
	assert.Len(t, m.Ledger.List(), c.before)
	if c.before > 0 {
		assert.Empty(t, p.hardware.destroyed)
	}
	// What it had is there for the next.
	mustPrepare(t, m, claims.ShareClaim("next", c.device, "50Gi"))
	mustRelease(t, m, "next")
	for _, other := range c.others() {
		mustRelease(t, m, string(other.UID))
	}
	p.nothingShared(m)
}

// notTwice checks that, if a record is left, nobody else is given what it holds.
func (c crashCase) notTwice(t *testing.T, m *Manager) {
	t.Helper()
	err := planOnce(t, m, claims.ShareClaim("b", c.device, "50Gi"))
	if m.Ledger.Has("a") {
		require.ErrorAs(t, err, new(*steps.ConflictError))
	} else {
		require.NoError(t, err)
	}
}

// The driver dies before each step of a share's Prepare or Unprepare in turn, whoever
// holds shares beside it, and also while its daemon starts.
func TestCrashWithShare(t *testing.T) {
	// An Unprepare has at least these steps: CDI file, leave, forget and the answer. A Prepare has
	// the intent, create, join, CDI file, done and the answer; a slow daemon of a whole GPU makes
	// two of them come twice.
	for operation, least := range map[string]int{"Prepare": 6, "Unprepare": 4} {
		for name, c := range crashCases() {
			for _, then := range []string{"prepare", "unprepare", "reconcile"} {
				t.Run(operation+" of the "+name+", then "+then, func(t *testing.T) {
					t.Parallel()
					for n := 0; ; n++ {
						p, m := c.start(t)
						interrupted := func() { _, _, _ = m.Prepare(t.Context(), c.mine()) }
						if operation == "Unprepare" {
							mustPrepare(t, m, c.mine())
							interrupted = func() { _ = m.Unprepare(t.Context(), claims.Ref("a")) }
						}
						dieBefore(m, n)
						if !crash(interrupted) {
							assert.GreaterOrEqual(t, n, least)
							return
						}
						m = p.start()
						require.Empty(t, m.Recover(nil))
						c.notTwice(t, m)
						c.repair(t, m, then)
						c.finish(t, p, m)
					}
				})
			}
		}
	}
}

// The driver dies while it waits for the daemon, with no lock held.
func TestCrashWhileDaemonStarts(t *testing.T) {
	for _, before := range []int{0, 1} {
		for _, then := range []string{"prepare", "unprepare", "reconcile"} {
			c := crashCase{claims.MemoryShare(0), before, true}
			p, m := c.start(t)
			p.shares.onWait = func(context.Context) error { runtime.Goexit(); return nil }
			require.True(t, crash(func() { _, _, _ = m.Prepare(t.Context(), c.mine()) }))
			p.shares.onWait = nil
			m = p.start()
			c.notTwice(t, m)
			c.repair(t, m, then)
			c.finish(t, p, m)
		}
	}
}

// The driver dies while it takes back a Prepare of which the Join failed.
func TestCrashDuringUndoOfShare(t *testing.T) {
	for name, c := range crashCases() {
		for _, phase := range []string{"undo-join", "undo-create"} {
			t.Run(name+" "+phase, func(t *testing.T) {
				t.Parallel()
				p, m := c.start(t)
				p.shares.onJoin = func(Holder) error { return errScripted }
				m.Observer = dyingAt(phase)
				require.True(t, crash(func() { _, _, _ = m.Prepare(t.Context(), c.mine()) }))
				p.shares.onJoin = nil
				m = p.start()
				c.notTwice(t, m)
				c.repair(t, m, "reconcile")
				c.finish(t, p, m)
			})
		}
	}
}

// repair is what the kubelet or the API server bring about after a crash.
func (c crashCase) repair(t *testing.T, m *Manager, how string) {
	t.Helper()
	switch how {
	case "prepare":
		r := mustPrepare(t, m, c.mine())
		assert.NotEmpty(t, r.Devices[0].UUID)
		mustRelease(t, m, "a")
	case "unprepare":
		mustRelease(t, m, "a")
	case "reconcile":
		for _, f := range m.Reconcile(t.Context(), api(c.others()...)) {
			require.NoError(t, f.Err)
		}
	}
}

// dyingAt dies when a phase is reported.
type dyingAt string

func (d dyingAt) Phase(_, phase string, _ time.Duration, _ error) {
	if phase == string(d) {
		runtime.Goexit()
	}
}

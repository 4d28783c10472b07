package claim

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/plan"
	"github.com/tranche-dev/tranche/test/claims"
)

// dieBefore ends the calling goroutine before its n-th step, as kill -9 ends the
// process: nothing is undone. The step after the last one is the answer.
func dieBefore(m *Manager, n int) {
	m.BeforeStep = func(context.Context, ledger.Record, *plan.Step) {
		if n--; n < 0 {
			runtime.Goexit()
		}
	}
}

// crash runs f until it dies, and tells whether it did.
func crash(f func()) (died bool) {
	done := make(chan struct{})
	died = true
	go func() {
		defer close(done)
		f()
		died = false
	}()
	<-done
	return died
}

// The driver dies before each step of Prepare in turn. The next run of it
// finishes what was begun, whether the claim is wanted still or not.
func TestCrashDuringPrepare(t *testing.T) {
	first, second := claims.MIG(0, "1g.10gb", 5, 1), claims.MIG(1, "3g.40gb", 0, 4)
	steps, err := plan.Prepare(newSituation(t, claims.For("a", first, second)))
	require.NoError(t, err)

	for n := range len(steps) + 1 {
		for _, wanted := range []bool{true, false} {
			t.Run(fmt.Sprintf("before step %d, wanted %t", n, wanted), func(t *testing.T) {
				p := newPlace(t, 2)
				m := p.start()
				dieBefore(m, n)
				require.True(t, crash(func() { _, _ = m.Prepare(t.Context(), claims.For("a", first, second)) }))

				m = p.start()
				require.Empty(t, m.Recover(nil))
				if wanted {
					// Others do not get what is held, before or after.
					_, err := m.Prepare(t.Context(), claims.For("a", first, second))
					require.NoError(t, err)
					assert.Equal(t, []string{first.Name(), second.Name()}, p.hardware.names())
					assert.LessOrEqual(t, p.hardware.made, 2, "made twice")
					require.NoError(t, m.Unprepare(t.Context(), claims.Ref("a")))
				} else {
					m.Reconcile(t.Context(), noClaims)
				}
				p.nothingHeld(m)
				_, err := m.Prepare(t.Context(), claims.For("b", first, second))
				require.NoError(t, err, "the place is free for the next")
			})
		}
	}
}

func TestCrashDuringUnprepare(t *testing.T) {
	first, second := claims.MIG(0, "1g.10gb", 5, 1), claims.MIG(1, "3g.40gb", 0, 4)
	// One more than the steps of the release: the answer.
	for n := range 5 {
		for _, again := range []string{"unprepare", "prepare", "reconcile"} {
			t.Run(fmt.Sprintf("before step %d, then %s", n, again), func(t *testing.T) {
				p := newPlace(t, 2)
				m := p.start()
				_, err := m.Prepare(t.Context(), claims.For("a", first, second))
				require.NoError(t, err)
				dieBefore(m, n)
				require.True(t, crash(func() { _ = m.Unprepare(t.Context(), claims.Ref("a")) }))

				m = p.start()
				require.Empty(t, m.Recover(nil))
				switch again {
				case "reconcile":
					m.Reconcile(t.Context(), noClaims)
				case "prepare": // the pod came back before its release was finished
					_, err := m.Prepare(t.Context(), claims.For("a", first, second))
					require.NoError(t, err)
					assert.Equal(t, []string{first.Name(), second.Name()}, p.hardware.names())
					assert.FileExists(t, p.cdiFile("a"))
					fallthrough
				default:
					require.NoError(t, m.Unprepare(t.Context(), claims.Ref("a")))
				}
				p.nothingHeld(m)
			})
		}
	}
	record := claims.Record("a", ledger.Prepared, first, second)
	live, err := newPlaceWith(t, "MIG-a", first, second).start().live(t.Context(), gpusOf(record))
	require.NoError(t, err)
	require.Len(t, plan.Release(record, live, nil, nil), 4, "this test dies before each of them")
}

// The driver dies while it takes back a Prepare that failed.
func TestCrashDuringUndo(t *testing.T) {
	first, second := claims.MIG(0, "1g.10gb", 5, 1), claims.MIG(0, "3g.40gb", 0, 4)
	p := newPlace(t, 1)
	m := p.start()
	p.hardware.onCreate = at(second, errScripted)
	m.Observer = dyingObserver{}
	require.True(t, crash(func() { _, _ = m.Prepare(t.Context(), claims.For("a", first, second)) }))
	require.Equal(t, []string{first.Name()}, p.hardware.names())

	p.hardware.onCreate = nil
	m = p.start()
	m.Reconcile(t.Context(), noClaims)
	p.nothingHeld(m)
}

// A claim of another pod never gets what a crash left behind before it is
// released.
func TestCrashLeavesPlaceHeld(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	p := newPlace(t, 1)
	m := p.start()
	dieBefore(m, 2) // made, but not handed out
	require.True(t, crash(func() { _, _ = m.Prepare(t.Context(), claims.For("a", one)) }))

	m = p.start()
	_, _, err := m.planRun(t.Context(), claims.Record("b", ledger.Preparing, one))
	var conflict *plan.ConflictError
	require.ErrorAs(t, err, &conflict)
}

// dyingObserver dies when the undoing of the last step is reported.
type dyingObserver struct{}

func (dyingObserver) Phase(_, phase string, _ time.Duration, _ error) {
	if phase == "undo-create" {
		runtime.Goexit()
	}
}

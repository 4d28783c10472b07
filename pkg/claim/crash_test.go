package claim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/test/claims"
)

// dieBefore ends the calling goroutine before its n-th step, as kill -9 ends the
// process: nothing is undone. The step after the last one is the answer.
func dieBefore(m *Manager, n int) {
	m.BeforeStep = func(context.Context, ledger.Record, *steps.Step) {
		if n--; n < 0 {
			runtime.Goexit()
		}
	}
}

// crash runs f until it dies, and reports whether it did.
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
	died := true
	for n := 0; died; n++ {
		for _, wanted := range []bool{true, false} {
			t.Run(fmt.Sprintf("before step %d, wanted %t", n, wanted), func(t *testing.T) {
				p, m := startNode(t, 2)
				dieBefore(m, n)
				died = crash(func() { _, _, _ = m.Prepare(t.Context(), claims.For("a", first, second)) })
				assert.True(t, died || n > 5, "it dies before each of its steps")

				m = p.start()
				require.Empty(t, m.Recover(nil))
				if wanted {
					// Others do not get what is held, before or after.
					mustPrepare(t, m, claims.For("a", first, second))
					assert.Equal(t, []string{first.Name(), second.Name()}, p.hardware.names())
					assert.LessOrEqual(t, p.hardware.made, 2, "made twice")
					mustRelease(t, m, "a")
				} else {
					m.Reconcile(t.Context(), noClaims)
				}
				p.nothingHeld(m)
				_, _, err := m.Prepare(t.Context(), claims.For("b", first, second))
				require.NoError(t, err, "the place is free for the next")
			})
		}
	}
}

func TestCrashDuringUnprepare(t *testing.T) {
	first, second := claims.MIG(0, "1g.10gb", 5, 1), claims.MIG(1, "3g.40gb", 0, 4)
	died := true
	for n := 0; died; n++ {
		for _, again := range []string{"unprepare", "prepare", "reconcile"} {
			t.Run(fmt.Sprintf("before step %d, then %s", n, again), func(t *testing.T) {
				p, m := startNode(t, 2)
				mustPrepare(t, m, claims.For("a", first, second))
				dieBefore(m, n)
				died = crash(func() { _ = m.Unprepare(t.Context(), claims.Ref("a")) })
				assert.True(t, died || n > 4, "it dies before each of its steps")

				m = p.start()
				require.Empty(t, m.Recover(nil))
				switch again {
				case "reconcile":
					m.Reconcile(t.Context(), noClaims)
				case "prepare": // the pod came back before its release was finished
					mustPrepare(t, m, claims.For("a", first, second))
					assert.Equal(t, []string{first.Name(), second.Name()}, p.hardware.names())
					assert.FileExists(t, p.cdiFile("a"))
					fallthrough
				default:
					mustRelease(t, m, "a")
				}
				p.nothingHeld(m)
			})
		}
	}
}

// hide makes the next run unable to see what there is, until end is called.
var hide = map[string]func(p *place) (end func()){
	"unknown load": func(p *place) (end func()) {
		p.hardware.loadID = ""
		return func() { p.hardware.loadID = "boot-1" }
	},
	"unreadable records": func(p *place) (end func()) {
		files, err := filepath.Glob(filepath.Join(p.ledgerDir(), "*.json"))
		require.NoError(p.t, err)
		for _, file := range files {
			require.NoError(p.t, os.Rename(file, file+".away"))
			require.NoError(p.t, os.Symlink(file, file)) // reading it fails (ELOOP), also for root
		}
		return func() {
			for _, file := range files {
				require.NoError(p.t, os.Remove(file))
				require.NoError(p.t, os.Rename(file+".away", file))
			}
		}
	},
	"started on a full disk": func(p *place) (end func()) {
		counter := p.ledgerDir() + ".generation"
		require.NoError(p.t, os.Remove(counter))
		require.NoError(p.t, os.Symlink("/proc/self/comm", counter)) // no space can be allocated there
		return func() { require.NoError(p.t, os.Remove(counter)) }
	},
}

// The driver dies before each step of Prepare and Unprepare, and its next run cannot see everything.
// It gives the place to nobody else, calls no partition of the claim foreign, and forgets nothing.
func TestCrashAndTheNextRunIsBlind(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	rival := claims.For("b", claims.MIG(0, "3g.40gb", 4, 4))
	for what, begin := range hide {
		for _, operation := range []string{"Prepare", "Unprepare"} {
			died := true
			for n := 0; died; n++ {
				t.Run(fmt.Sprintf("%s, %s, before step %d", what, operation, n), func(t *testing.T) {
					p, m := startNode(t, 1)
					if operation == "Unprepare" {
						mustPrepare(t, m, claims.For("a", one))
					}
					dieBefore(m, n)
					died = crash(func() {
						if operation == "Prepare" {
							_, _, _ = m.Prepare(t.Context(), claims.For("a", one))
						} else {
							_ = m.Unprepare(t.Context(), claims.Ref("a"))
						}
					})
					held := m.Ledger.Has("a")
					made := p.hardware.names()
					require.True(t, held || len(made) == 0)

					end := begin(p)
					m = p.start()
					m.Recover(nil)
					err := prepareOnce(t, m, rival)
					require.Equal(t, held, err != nil, "the place is not free: %v", err)
					if !held {
						mustRelease(t, m, "b")
					}
					foreign, _ := m.Foreign(t.Context(), claims.Address(0))
					require.Empty(t, foreign)
					if err := m.Unprepare(t.Context(), claims.Ref("a")); err != nil {
						require.Equal(t, "unreadable records", what)
						require.Equal(t, made, p.hardware.names())
					}
					require.True(t, len(p.hardware.names()) == 0 || len(m.Ledger.List())+len(m.Ledger.Unusable()) > 0, "it is not forgotten")

					end()
					mustRelease(t, m, "a")
					require.Empty(t, m.FinishReleases(t.Context()))
					p.nothingHeld(m)
					mustPrepare(t, p.start(), rival)
					require.NoError(t, m.Unprepare(t.Context(), claims.Ref("b")), "the runs see each other's changes")
					p.nothingHeld(m)
				})
			}
		}
	}
}

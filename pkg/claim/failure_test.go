package claim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/test/claims"
)

// at makes one placement fail and all others not.
func at(p gpu.Placement, err error) func(context.Context, gpu.Placement) error {
	return func(_ context.Context, q gpu.Placement) error {
		if q.Name() == p.Name() {
			return err
		}
		return nil
	}
}

// A Prepare that fails undoes what it did, the last step first, and a second
// try works.
func TestPrepareFailsAndUndoes(t *testing.T) {
	first, second := claims.MIG(0, "1g.10gb", 5, 1), claims.MIG(0, "3g.40gb", 0, 4)
	for name, tt := range map[string]struct {
		fail    func(*place)
		message string
		phases  []string
	}{
		"second partition cannot be made": {
			func(p *place) { p.hardware.onCreate = at(second, errScripted) }, "create " + second.Name() + ": scripted failure",
			[]string{"prepare create", "prepare create!", "prepare undo-create", "prepare undo-create", "prepare undo-intent"},
		},
		"containers' needs unknown": {
			func(p *place) { p.hardware.onEdits = func(gpu.Placement) error { return errScripted } }, "find out what containers need for " + first.Name(),
			[]string{"prepare create", "prepare create", "prepare cdi!", "prepare undo-cdi", "prepare undo-create", "prepare undo-create", "prepare undo-intent"},
		},
		"driver's files unknown": {
			func(p *place) { p.hardware.onCommon = func() error { return errScripted } }, "find out what containers need from the driver",
			[]string{"prepare create", "prepare create", "prepare cdi!", "prepare undo-cdi", "prepare undo-create", "prepare undo-create", "prepare undo-intent"},
		},
		"CDI file cannot be written": {
			func(p *place) { require.NoError(p.t, os.Mkdir(p.cdiFile("a"), 0o700)) }, "is the disk full or read-only?",
			[]string{"prepare create", "prepare create", "prepare cdi!", "prepare undo-cdi", "prepare undo-create", "prepare undo-create", "prepare undo-intent"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, m := startNode(t, 1)
			seen := &phases{}
			m.Observer = seen
			tt.fail(p)
			_, _, err := m.Prepare(t.Context(), claims.For("a", first, second))
			require.ErrorContains(t, err, tt.message)
			assert.NotContains(t, err.Error(), "could not be undone")
			assert.Equal(t, tt.phases, seen.seen[3:])
			p.nothingHeld(m)
			if len(p.hardware.destroyed) == 2 {
				assert.Equal(t, []string{"MIG-2", "MIG-1"}, p.hardware.destroyed, "the last one first")
			}

			*p.hardware = *newFakeHardware(1)
			mustPrepare(t, m, claims.For("a", first, second))
			mustRelease(t, m, "a")
			p.nothingHeld(m)
		})
	}
}

// What cannot be undone stays written down, and the next try finishes it.
func TestPrepareUndoFails(t *testing.T) {
	first, second := claims.MIG(0, "1g.10gb", 5, 1), claims.MIG(0, "3g.40gb", 0, 4)
	for name, next := range map[string]func(*testing.T, *Manager) error{
		"then Prepare": func(t *testing.T, m *Manager) error {
			_, _, err := m.Prepare(t.Context(), claims.For("a", first, second))
			return err
		},
		"then Unprepare": func(t *testing.T, m *Manager) error { return m.Unprepare(t.Context(), claims.Ref("a")) },
	} {
		t.Run(name, func(t *testing.T) {
			p, m := startNode(t, 1)
			p.hardware.onCreate = at(second, errScripted)
			p.hardware.onDestroy = at(first, fmt.Errorf("%w by process 7", gpu.ErrInUse))
			_, _, err := m.Prepare(t.Context(), claims.For("a", first, second))
			require.ErrorIs(t, err, errScripted)
			require.ErrorContains(t, err, "could not be undone, which the next attempt retries: destroy "+first.Name()+": in use by process 7")
			r, ok := m.Ledger.Get("a")
			require.True(t, ok, "the record is kept")
			assert.Equal(t, ledger.Preparing, r.State)

			p.hardware.onCreate, p.hardware.onDestroy = nil, nil
			m = p.start()
			require.NoError(t, next(t, m))
			mustRelease(t, m, "a")
			p.nothingHeld(m)
		})
	}
}

// The record cannot be completed: nothing is handed out that the ledger would
// not know of.
func TestPrepareDoneCannotBeWritten(t *testing.T) {
	p, m := startNode(t, 1)
	m.BeforeStep = func(_ context.Context, _ ledger.Record, s *steps.Step) {
		if s != nil && s.Op == steps.OpDone {
			require.NoError(t, os.Rename(p.ledgerDir(), p.ledgerDir()+".away"))
		}
	}
	_, _, err := m.Prepare(t.Context(), claims.For("a", claims.MIG(0, "1g.10gb", 5, 1)))
	require.ErrorContains(t, err, "write the record of claim team/claim-a")
	assert.Empty(t, p.hardware.names())
	assert.NoFileExists(t, p.cdiFile("a"))
	m.BeforeStep = nil
	require.NoError(t, os.Rename(p.ledgerDir()+".away", p.ledgerDir()))

	m = p.start() // still has the intent
	mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 5, 1)))
}

func TestPrepareIntentCannotBeWritten(t *testing.T) {
	p, m := startNode(t, 1)
	require.NoError(t, os.RemoveAll(p.ledgerDir()))
	_, _, err := m.Prepare(t.Context(), claims.For("a", claims.MIG(0, "1g.10gb", 5, 1)))
	require.ErrorContains(t, err, "is the disk full or read-only?")
	require.Zero(t, p.hardware.made, "nothing was made before it was written down")

	require.NoError(t, os.MkdirAll(p.ledgerDir(), 0o700))
	mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 5, 1)))
}

// Hardware that makes something else than it was asked for is not believed.
func TestPrepareVerifiesWhatWasMade(t *testing.T) {
	p, m := startNode(t, 1)
	m.Driver = func(string) (hardware.Driver, error) { return liar{p.hardware}, nil }
	_, _, err := m.Prepare(t.Context(), claims.For("a", claims.MIG(0, "1g.10gb", 5, 1)))
	require.ErrorContains(t, err, "the hardware reports gpu-0000-01-00-0-mig-1g-10gb-6 (complete: true) instead")
	assert.Empty(t, m.Ledger.List())
}

type liar struct{ *fakeHardware }

func (liar) Create(_ context.Context, p gpu.Placement) (gpu.Partition, error) {
	p.Start++
	return claims.PartitionAt(p, "MIG-1"), nil
}

// A container gets what the drivers of its own GPUs ask for, each once.
func TestCommonEditsOfTwoVendors(t *testing.T) {
	p, m := startNode(t, 3)
	amd := amdLike{p.hardware}
	m.Driver = func(address string) (hardware.Driver, error) {
		if address == claims.Address(1) {
			return amd, nil
		}
		return p.hardware, nil
	}
	mustPrepare(t, m, claims.For("a", claims.MIG(1, "1g.10gb", 0, 1), claims.MIG(0, "1g.10gb", 0, 1), claims.MIG(2, "1g.10gb", 0, 1)))
	spec := p.spec("a")
	assert.Contains(t, spec, `["AMD=0000:02:00.0","NVIDIA_VISIBLE_DEVICES=void"]`)
	mustPrepare(t, m, claims.For("b", claims.MIG(1, "1g.10gb", 1, 1)))
	assert.NotContains(t, p.spec("b"), "NVIDIA_VISIBLE_DEVICES")

	p.hardware.onCommon = func() error { return errScripted }
	_, _, err := m.Prepare(t.Context(), claims.For("c", claims.MIG(1, "1g.10gb", 2, 1), claims.MIG(0, "1g.10gb", 2, 1)))
	require.ErrorIs(t, err, errScripted)
}

type amdLike struct{ *fakeHardware }

func (amdLike) CommonEdits(_ context.Context, gpus []string) (*cdispecs.ContainerEdits, error) {
	return &cdispecs.ContainerEdits{Env: []string{"AMD=" + strings.Join(gpus, ",")}}, nil
}

func TestUnprepareFails(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	for name, tt := range map[string]struct {
		fail    func(*place)
		mend    func(*place)
		message string
	}{
		"a process uses it": {
			func(p *place) { p.hardware.onDestroy = at(one, usedBy7) }, func(p *place) { p.hardware.onDestroy = nil },
			"destroy " + one.Name() + ": gpu: in use by process 7",
		},
		"CDI file cannot be removed": {
			func(p *place) {
				require.NoError(p.t, os.Remove(p.cdiFile("a")))
				require.NoError(p.t, os.MkdirAll(filepath.Join(p.cdiFile("a"), "x"), 0o755))
			},
			func(p *place) { require.NoError(p.t, os.RemoveAll(p.cdiFile("a"))) },
			"remove the CDI file of claim a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, m := startNode(t, 1)
				mustPrepare(t, m, claims.For("a", one))
				tt.fail(p)
				require.ErrorContains(t, m.Unprepare(t.Context(), claims.Ref("a")), tt.message)
				require.Len(t, m.Ledger.List(), 1, "nobody else is given the place")
				tt.mend(p)
				mustRelease(t, m, "a")
				p.nothingHeld(m)
			})
		})
	}
}

// The last process of a container may hold a partition a moment longer than the
// kubelet thinks; the release waits for it.
func TestUnprepareWaitsForLastProcess(t *testing.T) {
	p, m := startNode(t, 1)
	mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 5, 1)))
	tries := 0
	p.hardware.onDestroy = func(context.Context, gpu.Placement) error {
		if tries++; tries < 3 {
			return fmt.Errorf("gpu: %w", gpu.ErrInUse)
		}
		return nil
	}
	mustRelease(t, m, "a")
	assert.Equal(t, 3, tries)
	p.nothingHeld(m)
}

// usedBy7 is what a vendor says of a partition that a process uses.
var usedBy7 = &gpu.ProcessesError{Err: fmt.Errorf("gpu: %w by process 7", gpu.ErrInUse)}

// However the waiting ends, the message says who is in the way.
func TestUnprepareInUse(t *testing.T) {
	for name, atLast := range map[string]func(context.Context) error{
		"the caller gives up": func(context.Context) error { return usedBy7 },
		"the call ends with its time": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, m := startNode(t, 1)
			mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 5, 1)))
			ctx, cancel := context.WithCancel(t.Context())
			tries := 0
			p.hardware.onDestroy = func(ctx context.Context, _ gpu.Placement) error {
				if tries++; tries == 1 {
					return usedBy7
				}
				cancel()
				return atLast(ctx)
			}
			err := m.Unprepare(ctx, claims.Ref("a"))
			require.ErrorIs(t, err, gpu.ErrInUse)
			require.ErrorContains(t, err, "by process 7")
			require.Len(t, m.Ledger.List(), 1)
		})
	}
}

// A caller that gives up does not stop the undoing.
func TestPrepareCancelled(t *testing.T) {
	p, m := startNode(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	second := claims.MIG(0, "3g.40gb", 0, 4)
	p.hardware.onCreate = func(ctx context.Context, q gpu.Placement) error {
		if q.Name() == second.Name() {
			cancel()
		}
		return ctx.Err()
	}
	p.hardware.onDestroy = func(ctx context.Context, _ gpu.Placement) error { return ctx.Err() }
	_, _, err := m.Prepare(ctx, claims.For("a", claims.MIG(0, "1g.10gb", 5, 1), second))
	require.ErrorIs(t, err, context.Canceled)
	p.nothingHeld(m)
}

package claim

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/plan"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

var errScripted = errors.New("scripted failure")

// place is a node's folders and hardware, which outlive the driver.
type place struct {
	t        *testing.T
	dir      string
	hardware *fakeHardware
	// shares is nil on a node that offers none.
	shares *fakeSharer
}

func newPlace(t *testing.T, gpus int) *place {
	return &place{t: t, dir: quickDir(t), hardware: newFakeHardware(gpus)}
}

// quickDir is a folder in memory, where that can be had: a plugin that is killed
// loses nothing there, and the tests write a great deal.
func quickDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "claim")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func (p *place) ledgerDir() string { return filepath.Join(p.dir, "claims") }
func (p *place) cdiDir() string    { return filepath.Join(p.dir, "cdi") }

// cdiFile is where a claim's CDI file lies.
func (p *place) cdiFile(uid string) string {
	return filepath.Join(p.cdiDir(), "gpu.tranche.dev-claim_"+uid+".json")
}

// start restarts the driver with the existing state.
func (p *place) start() *Manager {
	p.t.Helper()
	m, broken := p.startBroken()
	require.Empty(p.t, broken)
	return m
}

func (p *place) startBroken() (*Manager, []ledger.Broken) {
	p.t.Helper()
	records, broken, err := ledger.Open(p.ledgerDir())
	require.NoError(p.t, err)
	files, err := cdi.Open(p.cdiDir())
	require.NoError(p.t, err)
	config := Config{
		Node: claims.Node, Hardware: p.hardware, Ledger: records, CDI: files, LoadID: p.hardware.loadOf,
		GPUs: func() []gpu.GPU { return p.hardware.gpus },
	}
	if p.shares != nil {
		config.Shares = p.shares
	}
	return NewManager(config), broken
}

// nothingHeld checks that neither hardware nor folders know of anything.
func (p *place) nothingHeld(m *Manager) {
	p.t.Helper()
	require.Empty(p.t, p.hardware.names(), "partitions")
	require.Empty(p.t, m.Ledger.List(), "records")
	files, err := m.CDI.List()
	require.NoError(p.t, err)
	require.Empty(p.t, files, "CDI files")
}

// phases records what an Observer hears.
type phases struct {
	mu   sync.Mutex
	seen []string
}

func (p *phases) Phase(operation, phase string, _ time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		phase += "!"
	}
	p.seen = append(p.seen, operation+" "+phase)
}

// noClaims is an API server from which every claim is gone.
func noClaims(context.Context, string, string) (*resourceapi.ResourceClaim, error) { return nil, nil }

// newSituation is what a Prepare of the claim on an idle node plans from.
func newSituation(t *testing.T, c *resourceapi.ResourceClaim) plan.Situation {
	t.Helper()
	m := newPlace(t, 2).start()
	wanted, err := m.want(c)
	require.NoError(t, err)
	return plan.Situation{Wanted: wanted, GPUs: map[string]*gpu.GPU{claims.Address(0): new(claims.GPU(0)), claims.Address(1): new(claims.GPU(1))}}
}

// newPlaceWith is a node of two GPUs on which some partitions exist.
func newPlaceWith(t *testing.T, uuid string, placements ...gpu.Placement) *place {
	p := newPlace(t, 2)
	for _, q := range placements {
		p.hardware.add(q, uuid)
	}
	return p
}

func quote(data []byte) string {
	quoted, _ := json.Marshal(string(data))
	return string(quoted)
}

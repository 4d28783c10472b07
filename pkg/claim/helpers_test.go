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
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
	"github.com/tranche-dev/tranche/test/simulator/memory"
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
	return &place{t: t, dir: memory.TempDir(t), hardware: newFakeHardware(gpus)}
}

// startNode starts the driver on a new node with idle GPUs.
func startNode(t *testing.T, gpus int) (*place, *Manager) {
	t.Helper()
	p := newPlace(t, gpus)
	return p, p.start()
}

// startSharingNode is startNode on a node whose GPUs offer shares.
func startSharingNode(t *testing.T, gpus int) (*place, *Manager) {
	t.Helper()
	p := newPlace(t, gpus).offerShares()
	return p, p.start()
}

func (p *place) ledgerDir() string { return filepath.Join(p.dir, "claims") }
func (p *place) cdiDir() string    { return filepath.Join(p.dir, "cdi") }

// cdiFile is where a claim's CDI file lies.
func (p *place) cdiFile(uid string) string {
	return filepath.Join(p.cdiDir(), "gpu.tranche.dev-claim_"+uid+".json")
}

// spec is what a claim's CDI file says.
func (p *place) spec(uid string) string {
	p.t.Helper()
	data, err := os.ReadFile(p.cdiFile(uid))
	require.NoError(p.t, err)
	return string(data)
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
		Node: claims.Node, Driver: p.hardware.driver, Ledger: records, CDI: files, LoadID: p.hardware.loadOf,
		GPUs: func() []gpu.GPU { return p.hardware.gpus }, LockDir: p.dir,
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

func mustPrepare(t *testing.T, m *Manager, c *resourceapi.ResourceClaim) ledger.Record {
	t.Helper()
	r, _, err := m.Prepare(t.Context(), c)
	require.NoError(t, err)
	return r
}

func mustRelease(t *testing.T, m *Manager, uid string) {
	t.Helper()
	require.NoError(t, m.Unprepare(t.Context(), claims.Ref(uid)))
}

func wantedOf(t *testing.T, m *Manager, c *resourceapi.ResourceClaim) ledger.Record {
	t.Helper()
	wanted, err := m.want(c, m.GPUs())
	require.NoError(t, err)
	return wanted
}

// prepareMeanwhile prepares a claim in the background and sends how that ends.
func prepareMeanwhile(ctx context.Context, m *Manager, c *resourceapi.ResourceClaim) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, _, err := m.Prepare(ctx, c)
		done <- err
	}()
	return done
}

// prepareOnce is a Prepare that waits for nobody's release.
func prepareOnce(t *testing.T, m *Manager, c *resourceapi.ResourceClaim) error {
	t.Helper()
	_, err := (&preparation{Manager: m, claim: c}).attempt(t.Context())
	return err
}

// planOnce finds out whether a claim could be prepared, and changes nothing.
func planOnce(t *testing.T, m *Manager, c *resourceapi.ResourceClaim) error {
	t.Helper()
	_, _, err := m.stepsOf(t.Context(), m.GPUs(), wantedOf(t, m, c), nil)
	return err
}

// foreignOn are the partitions of a GPU that are nobody's.
func foreignOn(t *testing.T, m *Manager, gpuID string) []gpu.Partition {
	t.Helper()
	foreign, err := m.Foreign(t.Context(), gpuID)
	require.NoError(t, err)
	return foreign
}

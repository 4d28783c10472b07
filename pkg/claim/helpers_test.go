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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

const node = "node-a"

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

// start starts the driver anew over what is there.
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
		Node: node, Hardware: p.hardware, Ledger: records, CDI: files, LoadID: p.hardware.loadOf,
		GPUs: func() []gpu.GPU { return p.hardware.gpus },
	}
	if p.shares != nil {
		config.Shares = p.shares
	}
	return NewManager(config), broken
}

// resultOf is the scheduler's choice of a placement.
func resultOf(request string, p gpu.Placement) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{
		Request: request, Driver: gpu.DriverName, Pool: gpu.PoolName(node), Device: p.Name(),
	}
}

func adminResult(request string, p gpu.Placement) resourceapi.DeviceRequestAllocationResult {
	r := resultOf(request, p)
	r.AdminAccess = new(true)
	return r
}

// claimOf is an allocated claim that one pod uses.
func claimOf(uid string, results ...resourceapi.DeviceRequestAllocationResult) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "claim-" + uid, UID: types.UID(uid)},
		Status: resourceapi.ResourceClaimStatus{
			Allocation:  &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results}},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod-" + uid}},
		},
	}
}

// claimFor is a claim for some placements, one request each.
func claimFor(uid string, placements ...gpu.Placement) *resourceapi.ResourceClaim {
	var results []resourceapi.DeviceRequestAllocationResult
	for _, p := range placements {
		results = append(results, resultOf("r-"+p.Name(), p))
	}
	return claimOf(uid, results...)
}

func refOf(uid string) ledger.ClaimRef {
	return ledger.ClaimRef{UID: types.UID(uid), Namespace: "team", Name: "claim-" + uid}
}

// recordOfClaim is a claim's record for some placements, as Prepare writes it.
func recordOfClaim(uid string, state ledger.State, placements ...gpu.Placement) ledger.Record {
	r := ledger.Record{Version: ledger.Version, Claim: refOf(uid), State: state}
	for _, p := range placements {
		d := ledger.Device{Request: "r-" + p.Name(), Pool: gpu.PoolName(node), Name: p.Name(), Placement: p, Made: p.Type == gpu.TypeMIG, LoadID: "boot-1"}
		if state == ledger.Prepared {
			d.UUID = "MIG-" + uid
		}
		r.Devices = append(r.Devices, d)
	}
	return r
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
func newSituation(t *testing.T, c *resourceapi.ResourceClaim) situation {
	t.Helper()
	m := newPlace(t, 2).start()
	wanted, err := m.want(c)
	require.NoError(t, err)
	return situation{wanted: wanted, gpus: map[string]*gpu.GPU{address(0): new(testGPU(0)), address(1): new(testGPU(1))}}
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

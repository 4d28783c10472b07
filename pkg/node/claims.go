package node

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/share"
)

// claims are the claims of the node, with what they hold.
type claims struct {
	*base
	*claim.Manager
	// shares sets up shares, and daemons are their MPS daemons.
	shares  *share.Sharer
	daemons *share.Daemons
	// limiter sets the memory limits of pods.
	limiter *share.Limiter
}

func newClaims(ctx context.Context, b *base) (*claims, error) {
	files, err := cdi.Open(b.CDIDir)
	if err != nil {
		return nil, err
	}
	locks := filepath.Join(b.DataDir(), "locks")
	if err := os.MkdirAll(locks, 0o700); err != nil {
		return nil, fmt.Errorf("create the folder for the locks of GPUs: %w", err)
	}
	root := ""
	for _, d := range b.drivers.All() {
		root = cmp.Or(root, d.ProgramRoot)
	}
	daemons := share.NewDaemons(b.supervisor(ctx, root), b.events)
	shares := share.New(share.Config{Driver: b.drivers.Of, Daemons: daemons.Supervisor, NoMPS: daemons.WhyNot, HookFolder: b.DataDir()})
	daemons.SetServes(shares.Serves)
	manager := claim.NewManager(claim.Config{
		Node:     b.NodeName,
		Driver:   b.drivers.Of,
		Ledger:   b.records,
		CDI:      files,
		GPUs:     b.preparable,
		LoadID:   b.drivers.LoadID,
		LockDir:  locks,
		Shares:   shares,
		Static:   b.applied.Static,
		Running:  func(pods []ledger.Pod) ([]ledger.Pod, error) { return inventory.RunningPods(b.proc(), pods) },
		Observer: b.metrics,

		BeforeStep: b.beforeStep,
	})
	c := &claims{base: b, Manager: manager, shares: shares, daemons: daemons}
	c.limiter = c.newLimiter()
	return c, nil
}

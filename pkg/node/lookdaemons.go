package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/node/drivers"
	"github.com/tranche-dev/tranche/pkg/node/sharing"
	"github.com/tranche-dev/tranche/pkg/share"
)

// rejoinTimeout is how long the start of a dead daemon may wait for its GPUs.
const rejoinTimeout = 10 * time.Second

// defaultMPSDir is the folder of the MPS daemons. It is short, because the paths of
// their sockets are limited.
const defaultMPSDir = "/run/tranche/mps"

func (c *Config) mpsDir() string { return cmp.Or(c.MPSDir, defaultMPSDir) }

// supervisor runs the MPS daemons of the node. driverRoot is the folder of
// NVIDIA's driver on the host; without one, there are only such daemons to end
// that are left of another day.
func (c *Config) supervisor(ctx context.Context, driverRoot string) *mps.Supervisor {
	return mps.New(mps.Config{
		Dir: c.mpsDir(), HostRoot: c.HostRoot, DriverRoot: driverRoot,
		ShmSize: c.MPSSharedMemory, Launcher: c.MPSLauncher, Logger: klog.FromContext(ctx),
	})
}

// openShares finds what sets up the shares of GPUs.
func (p *plugin) openShares(ctx context.Context) {
	root := ""
	for _, o := range p.hardware.All() {
		root = cmp.Or(root, o.ProgramRoot)
	}
	p.daemons = sharing.NewDaemons(p.supervisor(ctx, root), p.events)
	p.shares = share.New(share.Config{GPUs: p.hardware, Daemons: p.daemons, NoMPS: p.daemons.WhyNot})
	p.daemons.SetServes(p.shares.Serves)
	var err error
	p.sharing, err = sharing.Open(p.sharingFile(), sharing.Config{Events: p.events, Held: p.heldShares, HeldBy: p.heldBy})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Settings that are newer may hold although shares are held")
	}
}

// driverFound goes by a driver that was not there before.
func (p *plugin) driverFound(ctx context.Context, o *drivers.Opened) {
	if o.ProgramRoot != "" {
		p.daemons.Supervise(p.supervisor(ctx, o.ProgramRoot))
	}
}

// lookAfterDaemons looks for daemons that have died, tells of them, and starts them
// again. Their clients have died with them, and the kubelet starts those again.
// During a rolling update one plugin looks.
func (p *plugin) lookAfterDaemons(ctx context.Context) {
	if !p.publisher.IsMine() {
		return
	}
	problems := p.shares.Check(p.currentRecords())
	for _, problem := range problems {
		p.tellDaemon(ctx, &problem)
		p.rejoin(ctx, &problem)
	}
	for _, name := range p.daemons.Troubled() {
		isDead := slices.ContainsFunc(problems, func(d share.Problem) bool { return d.Daemon == name })
		switch status := p.daemons.Status(name); { //nolint:contextcheck // what it starts has its own time
		case isDead:
		case status.Ready:
			p.events.Note(ctx, v1alpha1.EventMPSDaemonRestarted, fmt.Sprintf("MPS daemon %s works again; it serves %s", name, p.servedBy(name)))
			p.daemons.Take(name, "")
		case status.Gone: // whoever relied on it was released
			p.daemons.Take(name, "")
		}
	}
}

// currentRecords are the records of the ledger, with what was handed out under the
// present loads of the GPUs' drivers.
func (p *plugin) currentRecords() []ledger.Record {
	records := claim.InUse(p.claims.Ledger.List())
	for i := range records {
		records[i].Devices = slices.DeleteFunc(records[i].Devices, func(d ledger.Device) bool {
			return d.LoadID != p.hardware.LoadID(d.Placement.GPU)
		})
	}
	return records
}

// tellDaemon tells, on the node and on the pods, what is wrong with a daemon.
func (p *plugin) tellDaemon(ctx context.Context, problem *share.Problem) {
	text := fmt.Sprintf("MPS daemon %s has died and is started again: %v", problem.Daemon, problem.Err)
	if !p.daemons.Take(problem.Daemon, text) {
		return
	}
	for _, ref := range problem.Claims {
		record, _ := p.claims.Ledger.Get(ref.UID)
		for _, pod := range record.Pods {
			p.events.WarnPod(ctx, ref.Namespace, pod, v1alpha1.EventMPSDaemonDied, fmt.Sprintf("Programs on the GPU share of claim %s have ended: %s", ref.Name, text))
		}
	}
	p.events.Warn(ctx, v1alpha1.EventMPSDaemonDied, fmt.Sprintf("The shares of %s have lost what keeps them to their memory: %s", p.servedBy(problem.Daemon), text))
}

// servedBy names the claims that rely on a daemon, and their pods.
func (p *plugin) servedBy(daemon string) string {
	var names []string
	for _, r := range p.claims.Ledger.List() {
		if slices.ContainsFunc(r.Devices, func(d ledger.Device) bool { return p.shares.Serves(r.Claim, d) == daemon }) {
			names = append(names, nameOf(&r))
		}
	}
	return strings.Join(names, "; ")
}

// rejoin starts a dead daemon again. That it works is for the next look to see.
func (p *plugin) rejoin(ctx context.Context, problem *share.Problem) {
	ctx, cancel := context.WithTimeout(ctx, rejoinTimeout)
	defer cancel()
	if err := p.claims.Rejoin(ctx, problem.Claims[0].UID); err != nil {
		klog.FromContext(ctx).Error(err, "A dead MPS daemon cannot be started again now", "daemon", problem.Daemon)
	}
}

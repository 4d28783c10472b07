package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/node/drivers"
	"github.com/tranche-dev/tranche/pkg/share"
)

// rejoinTimeout is how long restarting a dead daemon may wait for its GPUs.
const rejoinTimeout = 10 * time.Second

// defaultMPSDir is the folder of the MPS daemons. It is short, because the paths of
// their sockets are limited.
const defaultMPSDir = "/run/tranche/mps"

func (c *Config) mpsDir() string { return cmp.Or(c.MPSDir, defaultMPSDir) }

// supervisor returns a supervisor for the MPS daemons of the node. driverRoot is the folder of
// NVIDIA's driver on the host. If it is empty, the supervisor can only stop daemons.
func (c *Config) supervisor(ctx context.Context, driverRoot string) *mps.Supervisor {
	return mps.New(mps.Config{
		Dir: c.mpsDir(), HostRoot: c.HostRoot, DriverRoot: driverRoot,
		ShmSize: c.MPSSharedMemory, Launcher: c.MPSLauncher, Logger: klog.FromContext(ctx),
	})
}

// openShares connects MPS daemons, the Sharer and the settings of sharing.
func (p *plugin) openShares(ctx context.Context) {
	root := ""
	for _, o := range p.hardware.All() {
		root = cmp.Or(root, o.ProgramRoot)
	}
	p.daemons = share.NewDaemons(p.supervisor(ctx, root), p.events)
	p.shares = share.New(share.Config{Driver: p.hardware.Of, Daemons: p.daemons, NoMPS: p.daemons.WhyNot})
	p.daemons.SetServes(p.shares.Serves)
	var err error
	p.sharing, err = share.OpenState(p.sharingFile(), share.StateConfig{Events: p.events, Held: p.heldShares, HeldBy: p.heldBy})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the settings of sharing; newer ones may apply although claims hold shares")
	}
}

// driverFound uses the MPS programs of a driver that was opened later.
func (p *plugin) driverFound(ctx context.Context, o *drivers.Opened) {
	if o.ProgramRoot != "" {
		p.daemons.Supervise(p.supervisor(ctx, o.ProgramRoot))
	}
}

// lookAfterDaemons reports and restarts MPS daemons that have died. Their clients have died
// with them; the kubelet restarts those. During a rolling update, only one plugin does this.
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
			p.events.Note(ctx, names.EventMPSDaemonRestarted, fmt.Sprintf("MPS daemon %s was restarted; it serves %s", name, p.servedBy(name)))
			p.daemons.Take(name, "")
		case status.Gone: // its claims were released
			p.daemons.Take(name, "")
		}
	}
}

// currentRecords returns the records of the ledger with only those devices that were prepared
// since their driver was loaded.
func (p *plugin) currentRecords() []ledger.Record {
	records := claim.InUse(p.claims.Ledger.List())
	for i := range records {
		records[i].Devices = slices.DeleteFunc(records[i].Devices, func(d ledger.Device) bool {
			// Without a driver, no daemon can run.
			return p.hardware.LoadID(d.Placement.GPU) == "" || p.claims.Lapsed(d)
		})
	}
	return records
}

// tellDaemon reports the problem of a daemon in events about the node and the pods.
func (p *plugin) tellDaemon(ctx context.Context, problem *share.Problem) {
	text := fmt.Sprintf("MPS daemon %s has died and is restarted: %v", problem.Daemon, problem.Err)
	if !p.daemons.Take(problem.Daemon, text) {
		return
	}
	for _, ref := range problem.Claims {
		record, _ := p.claims.Ledger.Get(ref.UID)
		for _, pod := range record.Pods {
			p.events.WarnPod(ctx, ref.Namespace, pod, names.EventMPSDaemonDied, fmt.Sprintf("Programs on the GPU share of claim %s have ended: %s", ref.Name, text))
		}
	}
	p.events.Warn(ctx, names.EventMPSDaemonDied, fmt.Sprintf("Nothing limits the memory of the shares of %s: %s", p.servedBy(problem.Daemon), text))
}

// servedBy names the claims that a daemon serves, and their pods.
func (p *plugin) servedBy(daemon string) string {
	var names []string
	for _, r := range p.claims.Ledger.List() {
		if slices.ContainsFunc(r.Devices, func(d ledger.Device) bool { return p.shares.Serves(r.Claim, d) == daemon }) {
			names = append(names, nameOf(&r))
		}
	}
	return strings.Join(names, "; ")
}

// rejoin restarts a dead daemon. The next check finds out whether it works.
func (p *plugin) rejoin(ctx context.Context, problem *share.Problem) {
	ctx, cancel := context.WithTimeout(ctx, rejoinTimeout)
	defer cancel()
	if err := p.claims.Rejoin(ctx, problem.Claims[0].UID); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot restart a dead MPS daemon now, which is retried", "daemon", problem.Daemon)
	}
}

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
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
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

// driverFound uses the MPS programs of a driver that was opened later.
func (c *claims) driverFound(ctx context.Context, o *inventory.VendorDriver) {
	if o.ProgramRoot != "" {
		c.daemons.Supervise(c.supervisor(ctx, o.ProgramRoot))
	}
}

// lookAfterDaemons reports and restarts MPS daemons that have died. Their clients have died
// with them; the kubelet restarts those.
func (c *claims) lookAfterDaemons(ctx context.Context) {
	problems := c.shares.Check(c.currentRecords())
	for _, problem := range problems {
		c.reportDaemon(ctx, &problem)
		c.rejoin(ctx, &problem)
	}
	for _, name := range c.daemons.Troubled() {
		isDead := slices.ContainsFunc(problems, func(d share.Problem) bool { return d.Daemon == name })
		switch status := c.daemons.Supervisor().Status(name); { //nolint:contextcheck // what it starts has its own time
		case isDead:
		case status.Ready:
			c.events.Note(ctx, names.EventMPSDaemonRestarted, fmt.Sprintf("MPS daemon %s was restarted; it serves %s", name, c.servedBy(name)))
			c.daemons.Take(name, "")
		case status.Gone: // its claims were released
			c.daemons.Take(name, "")
		}
	}
}

// currentRecords returns the records of the ledger with only those devices that were prepared
// since their driver was loaded.
func (c *claims) currentRecords() []ledger.Record {
	records := ledger.InUse(c.records.List())
	for i := range records {
		records[i].Devices = slices.DeleteFunc(records[i].Devices, func(d ledger.Device) bool {
			// Without a driver, no daemon can run.
			return c.drivers.LoadID(d.Placement.GPU) == "" || c.Lapsed(d)
		})
	}
	return records
}

// reportDaemon reports the problem of a daemon in events about the node and the pods.
func (c *claims) reportDaemon(ctx context.Context, problem *share.Problem) {
	text := fmt.Sprintf("MPS daemon %s has died and is restarted: %v", problem.Daemon, problem.Err)
	if !c.daemons.Take(problem.Daemon, text) {
		return
	}
	for _, ref := range problem.Claims {
		record, _ := c.records.Get(ref.UID)
		for _, pod := range record.Pods {
			c.events.WarnPod(ctx, ref.Namespace, pod, names.EventMPSDaemonDied, fmt.Sprintf("Programs on the GPU share of claim %s have ended: %s", ref.Name, text))
		}
	}
	c.events.Warn(ctx, names.EventMPSDaemonDied, fmt.Sprintf("Nothing limits the memory of the shares of %s: %s", c.servedBy(problem.Daemon), text))
}

// servedBy names the claims that a daemon serves, and their pods.
func (c *claims) servedBy(daemon string) string {
	var names []string
	for _, r := range c.records.List() {
		if slices.ContainsFunc(r.Devices, func(d ledger.Device) bool { return c.shares.Serves(r.Claim, d) == daemon }) {
			names = append(names, nameOf(&r))
		}
	}
	return strings.Join(names, "; ")
}

// rejoin restarts a dead daemon. The next check finds out whether it works.
func (c *claims) rejoin(ctx context.Context, problem *share.Problem) {
	ctx, cancel := context.WithTimeout(ctx, rejoinTimeout)
	defer cancel()
	if err := c.Rejoin(ctx, problem.Claims[0].UID); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot restart a dead MPS daemon now, which is retried", "daemon", problem.Daemon)
	}
}

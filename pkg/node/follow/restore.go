package follow

import (
	"cmp"
	"context"
	"time"

	"github.com/tranche-dev/tranche/api/names"
)

// restore applies the profile again after a reboot or a reload of a driver. What fails is
// retried after a pause. The controller does not ask for this, because the node reports the
// profile as applied.
func (f *Follower) restore(ctx context.Context) {
	now := f.loads()
	again := !f.restoreAgain.IsZero() && !time.Now().Before(f.restoreAgain)
	if now == f.restored && !again {
		return
	}
	if now != f.restored {
		f.restorePause = 0
	}
	var err error
	f.Monitor.Change(ctx, func() { err = bounded(ctx, applyBudget, f.Profile.Restore) })
	if ctx.Err() != nil {
		return // the plugin is stopping
	}
	f.reportRestored(ctx, err)
	f.restored = f.loads()
}

// reportRestored reports a new reason why restoring failed, and schedules the retry.
func (f *Follower) reportRestored(ctx context.Context, err error) {
	if err == nil {
		f.restoreAgain, f.notRestored = time.Time{}, nil
		return
	}
	f.restorePause = min(max(2*f.restorePause, cmp.Or(f.RestorePause, firstRestore)), lastRestore)
	f.restoreAgain = time.Now().Add(f.restorePause)
	if known := f.notRestored; known == nil || known.Error() != err.Error() {
		f.Events.Warn(ctx, names.EventProfileNotRestored, "The profile of this node could not be restored on all of its GPUs, which is retried: "+err.Error())
	}
	f.notRestored = err
}

// loads identifies the GPUs that answer, and the loads of their drivers.
func (f *Follower) loads() string {
	text := ""
	for _, g := range f.Roster.Answering() {
		text += g.PCIAddress + " " + f.Drivers.LoadID(g.PCIAddress) + "\n"
	}
	return text
}

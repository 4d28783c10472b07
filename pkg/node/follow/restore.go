package follow

import (
	"cmp"
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// restore puts back what a reboot or a new load of a driver has taken, once for each,
// and again, with pauses, what could not be: nobody else asks for it, since the node
// says that it follows the profile.
func (f *Follower) restore(ctx context.Context) {
	now := f.loads()
	again := !f.restoreAgain.IsZero() && !time.Now().Before(f.restoreAgain)
	if now == f.restored && !again {
		return
	}
	if now != f.restored {
		f.restorePause = 0
	}
	f.Looking.Lock()
	defer f.Looking.Unlock()
	err := bounded(ctx, applyBudget, f.Profile.Restore)
	if ctx.Err() != nil {
		return // the plugin ends
	}
	f.tellRestored(ctx, err)
	if err := f.Look(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "The GPUs cannot be listed")
	}
	f.restored = f.loads()
}

// tellRestored says once why something could not be put back, and when it is tried again.
func (f *Follower) tellRestored(ctx context.Context, err error) {
	if err == nil {
		f.restoreAgain, f.notRestored = time.Time{}, nil
		return
	}
	f.restorePause = min(max(2*f.restorePause, cmp.Or(f.RestorePause, firstRestore)), lastRestore)
	f.restoreAgain = time.Now().Add(f.restorePause)
	if known := f.notRestored; known == nil || known.Error() != err.Error() {
		f.Events.Warn(ctx, v1alpha1.EventProfileNotRestored, "The GPUs of this node are not all as their profile wants them, which is tried again: "+err.Error())
	}
	f.notRestored = err
}

// loads identifies the GPUs that are there, and the loads of their drivers.
func (f *Follower) loads() string {
	text := ""
	for _, g := range f.Roster.Answering() {
		text += g.PCIAddress + " " + f.Hardware.LoadID(g.PCIAddress) + "\n"
	}
	return text
}

package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/durable"
)

// rebootPatience is how long the machine may take to shut down before the reboot is requested
// again.
const rebootPatience = 5 * time.Minute

// rebootRequest is the record of a reboot. It is written before the reboot, for the plugin that
// starts afterwards.
type rebootRequest struct {
	Switch string    `json:"switchID"`
	BootID string    `json:"bootID"`
	At     time.Time `json:"requestTime"`
	// Target identifies the profile and policy that the reboot is for.
	Target string `json:"target,omitempty"`
	// Count is how often the machine was rebooted for the target.
	Count int `json:"count,omitempty"`
}

var rebootFormat = durable.Format{Version: 1, MinReader: 1}

// MostReboots is how often a machine is rebooted for a profile that cannot be applied, for
// example because a GPU fails after every boot. After that, nothing is retried until the
// profile, its policy or the GPUs change.
const MostReboots = 2

// rebootTarget is the same for switches to the same profile with the same policy.
func rebootTarget(s *v1beta1.Switch) string {
	policy, _ := json.Marshal(s.Policy) // cannot fail: JSON can express all of its types
	return s.To.Hash + " " + string(policy)
}

// reboot reboots the machine once for a switch, and applies the profile afterwards. It returns
// nil as long as the machine has not rebooted.
func (f *Follower) reboot(ctx context.Context, s *v1beta1.Switch) *v1beta1.Task {
	last, file, err := f.readReboot()
	switch {
	case err != nil:
		return rebootFailed(err)
	case f.Machine.BootID() == "":
		return rebootFailed(errors.New("its boot ID cannot be read, so it is impossible to tell whether it was rebooted"))
	case last.Switch == s.ID && last.BootID != f.Machine.BootID():
		return f.afterReboot(ctx, s)
	case last.Switch == s.ID && f.Machine.Now().Sub(last.At) < rebootPatience:
		return nil
	}
	target := rebootTarget(s)
	next := rebootRequest{Switch: s.ID, BootID: f.Machine.BootID(), At: f.Machine.Now(), Target: target, Count: 1}
	if last.Target == target {
		next.Count = last.Count
		if last.Switch != s.ID {
			next.Count++
		}
	}
	if next.Count > MostReboots {
		return &v1beta1.Task{Phase: v1beta1.TaskFailed, Reason: names.ReasonRebootRequired, Message: fmt.Sprintf(
			"the node was rebooted %d times for profile %s, which still could not be applied; find out what fails after a boot, then change the profile or its policy", MostReboots, s.To.ProfileName)}
	}
	f.Events.Warn(ctx, names.EventRebooting, fmt.Sprintf("The node reboots, because profile %s can only be applied to its GPUs with a reboot and allows it", s.To.ProfileName))
	if err := file.Write(next); err != nil {
		return rebootFailed(fmt.Errorf("write the record of the reboot to %s: %w", f.RebootFile, err))
	}
	if err := f.Machine.Reboot(ctx); err != nil {
		return rebootFailed(errors.Join(err, os.Remove(f.RebootFile)))
	}
	f.Nudge()
	return nil
}

// afterReboot applies the profile after the reboot. On success it removes the record, and with
// it the count.
func (f *Follower) afterReboot(ctx context.Context, s *v1beta1.Switch) *v1beta1.Task {
	task := f.apply(ctx, s, func(ctx context.Context) v1beta1.Task { return f.Profile.Apply(ctx, s.To, false) })
	if task.Phase == v1beta1.TaskDone {
		if err := os.Remove(f.RebootFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			klog.FromContext(ctx).Error(err, "Cannot remove the record of a successful reboot, so it counts for the next switch to the profile")
		}
	}
	return &task
}

func rebootFailed(err error) *v1beta1.Task {
	return &v1beta1.Task{Phase: v1beta1.TaskFailed, Reason: names.ReasonRebootFailed, Message: fmt.Sprintf("the node cannot be rebooted: %v", err)}
}

// readReboot returns the record of the last reboot, and the file that has it.
func (f *Follower) readReboot() (rebootRequest, *durable.State[rebootRequest], error) {
	file := &durable.State[rebootRequest]{Path: f.RebootFile, Format: rebootFormat}
	last, err := file.Read()
	if err != nil {
		return last, nil, fmt.Errorf("read the record of the last reboot from %s: %w", f.RebootFile, err)
	}
	return last, file, nil
}

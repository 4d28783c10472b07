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

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/durable"
)

// rebootPatience is how long it is waited for a machine to go down before it is told
// to once more.
const rebootPatience = 5 * time.Minute

// rebootOrder is what is written down before the machine is told to reboot: the plugin
// that starts on it next must know that it was.
type rebootOrder struct {
	Switch string    `json:"switch"`
	BootID string    `json:"bootID"`
	At     time.Time `json:"at"`
	// Target is the profile, with its policy, that the reboot is for.
	Target string `json:"target,omitempty"`
	// Count is how often the machine was rebooted for the target without reaching it.
	Count int `json:"count,omitempty"`
}

// MostReboots is how often a machine is rebooted for one profile that it never reaches,
// for example because a GPU fails after every boot. Then a person must look: nothing is
// tried again until the profile, its policy or the GPUs change.
const MostReboots = 2

// rebootTarget tells whether two switches are for the same.
func rebootTarget(s *v1alpha1.Switch) (string, error) {
	policy, err := json.Marshal(s.Policy)
	return s.To.Hash + " " + string(policy), err
}

// reboot has the machine reboot for a switch, once, and finishes the switch when it is
// up again. It returns nil as long as that is not so.
func (f *Follower) reboot(ctx context.Context, s *v1alpha1.Switch) *v1alpha1.Task {
	order, err := f.readReboot()
	switch {
	case err != nil:
		return rebootFailed(err)
	case f.Machine.BootID() == "":
		return rebootFailed(errors.New("it does not tell its boot id, so it could not be told whether it was rebooted"))
	case order.Switch == s.ID && order.BootID != f.Machine.BootID():
		return f.afterReboot(ctx, s)
	case order.Switch == s.ID && f.Machine.Now().Sub(order.At) < rebootPatience:
		return nil
	}
	target, err := rebootTarget(s)
	if err != nil {
		return rebootFailed(err)
	}
	next := rebootOrder{Switch: s.ID, BootID: f.Machine.BootID(), At: f.Machine.Now(), Target: target, Count: 1}
	if order.Target == target {
		next.Count = order.Count
		if order.Switch != s.ID {
			next.Count++
		}
	}
	if next.Count > MostReboots {
		return &v1alpha1.Task{Phase: v1alpha1.TaskFailed, Reason: v1alpha1.ReasonNeedsReset, Message: fmt.Sprintf(
			"the node was rebooted %d times for profile %s and did not reach it; find out what fails after a boot, then change the profile or its policy", MostReboots, s.To.Profile)}
	}
	f.Events.Warn(ctx, v1alpha1.EventRebooting, fmt.Sprintf("The node reboots, because its GPUs follow profile %s only then and the profile allows it", s.To.Profile))
	if err := f.writeReboot(next); err != nil {
		return rebootFailed(err)
	}
	if err := f.Machine.Reboot(ctx); err != nil {
		return rebootFailed(errors.Join(err, os.Remove(f.RebootFile)))
	}
	f.Nudge()
	return nil
}

// afterReboot finishes a switch on a machine that is up again. A profile that is reached
// is not counted any more.
func (f *Follower) afterReboot(ctx context.Context, s *v1alpha1.Switch) *v1alpha1.Task {
	task := f.apply(ctx, s, func(ctx context.Context) v1alpha1.Task { return f.Profile.Apply(ctx, s.To, false) })
	if task.Phase == v1alpha1.TaskDone {
		if err := os.Remove(f.RebootFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			klog.FromContext(ctx).Error(err, "A reboot that helped stays written down")
		}
	}
	return &task
}

func rebootFailed(err error) *v1alpha1.Task {
	return &v1alpha1.Task{Phase: v1alpha1.TaskFailed, Reason: v1alpha1.ReasonRebootFailed, Message: fmt.Sprintf("the node cannot be rebooted: %v", err)}
}

func (f *Follower) readReboot() (rebootOrder, error) {
	var order rebootOrder
	data, err := os.ReadFile(f.RebootFile)
	if errors.Is(err, fs.ErrNotExist) {
		return order, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &order)
	}
	if err != nil {
		return order, fmt.Errorf("read whether it was told to: %w", err)
	}
	return order, nil
}

func (f *Follower) writeReboot(order rebootOrder) error {
	data, err := json.Marshal(order)
	if err == nil {
		err = durable.WriteFile(f.RebootFile, data)
	}
	if err != nil {
		return fmt.Errorf("write down that it is told to: %w", err)
	}
	return nil
}

package follow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/kubefake"
)

func failedFor(n int) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprint("claim-", n), UID: types.UID(fmt.Sprint("uid-", n))}}
}

// A claim that fails again keeps its first message; what works, or nobody asks for, is forgotten.
func TestUnpreparedClaims(t *testing.T) {
	f := &Follower{}
	assert.Empty(t, f.unprepared.list())
	f.Prepared("uid-0")
	begin := time.Now().Add(-time.Second)
	for n := range mostUnprepared + 1 {
		f.Unprepared(failedFor(n), errors.New(strings.Repeat("x", 9999)))
	}
	f.Unprepared(failedFor(0), errors.New("again"))
	all := f.unprepared.list()
	require.Len(t, all, mostUnprepared)
	first := all[0]
	assert.False(t, first.FirstFailureTime.Time.Before(begin.Truncate(time.Second)))
	first.FirstFailureTime = metav1.Time{}
	assert.Equal(t, v1beta1.UnpreparedClaim{Namespace: "team", Name: "claim-0", UID: "uid-0", Message: strings.Repeat("x", v1beta1.MaxListedText-3) + "..."}, first)

	f.Prepared("uid-0")
	late := f.unprepared.claims["uid-1"]
	late.last = time.Now().Add(-forgetUnprepared - time.Second)
	f.unprepared.claims["uid-1"] = late
	early := f.unprepared.claims["uid-8"]
	early.FirstFailureTime = metav1.NewTime(begin.Add(-time.Hour))
	f.unprepared.claims["uid-8"] = early
	var uids []string
	for _, c := range f.unprepared.list() {
		uids = append(uids, c.UID)
	}
	assert.Equal(t, []string{"uid-8", "uid-2", "uid-3", "uid-4", "uid-5", "uid-6", "uid-7"}, uids)
	assert.Len(t, f.unprepared.claims, 7)
}

// GPUs are unhealthy since they were first reported, also by an earlier run.
func TestUnhealthyGPUs(t *testing.T) {
	sick := func(slot int) inventory.GPU {
		return inventory.GPU{GPU: gpu.GPU{PCIAddress: fmt.Sprintf("0000:0%d:00.0", slot), Vendor: gpu.NVIDIA}, Problem: gpu.Problem{Message: "no"}}
	}
	at := func(hour int) metav1.Time { return metav1.NewTime(time.Date(2026, 11, 21, hour, 0, 0, 0, time.UTC)) }
	reported := func(hour int, slots ...int) *v1beta1.NodeReport {
		r := &v1beta1.NodeReport{}
		for _, slot := range slots {
			g := sick(slot)
			r.UnhealthyGPUs = append(r.UnhealthyGPUs, v1beta1.UnhealthyGPU{Name: g.Name(), DetectionTime: at(hour)})
		}
		return r
	}
	f := &Follower{Config: Config{Drivers: inventory.NewDrivers(inventory.DriversConfig{})}, before: reported(1, 1, 2), reported: reported(2, 2)}
	healthy := sick(4)
	healthy.Problem.Message = ""
	got := f.unhealthy([]inventory.GPU{sick(1), sick(2), sick(3), healthy})
	require.Len(t, got, 3)
	assert.WithinDuration(t, time.Now(), got[2].DetectionTime.Time, time.Minute)
	assert.Equal(t, append(reported(1, 1).UnhealthyGPUs, reported(2, 2).UnhealthyGPUs...), got[:2])
}

// machine is a machine whose clock and boots the test decides.
type machine struct {
	boot    string
	now     time.Time
	reboots int
	err     error
}

func (m *machine) hardware() hardware.Machine {
	return hardware.Machine{
		BootID: func() string { return m.boot }, Now: func() time.Time { return m.now },
		Reboot: func(context.Context) error { m.reboots++; return m.err },
	}
}

func following(t *testing.T, m *machine) *Follower {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "node-uid"}}
	events, err := telemetry.OpenEvents(t.Context(), kubefake.New(), node)
	require.NoError(t, err)
	t.Cleanup(events.Close)
	return New(Config{Node: node, Nodes: clientfake.New().GPUNodes(), Machine: m.hardware(), Events: events, RebootFile: filepath.Join(t.TempDir(), "reboot.json")})
}

func needingReboot(id, hash string) *v1beta1.Switch {
	return &v1beta1.Switch{ID: id, To: v1beta1.ProfileSnapshot{ProfileName: "p", Hash: hash}}
}

// A switch reboots the machine once, and again only if that does not happen.
func TestReboot(t *testing.T) {
	m := &machine{boot: "one", now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	f := following(t, m)
	sw := needingReboot("1", "h")
	assert.Nil(t, f.reboot(t.Context(), sw))
	assert.Equal(t, 1, m.reboots)
	assert.Len(t, f.wake, 1)
	record, _, err := f.readReboot()
	require.NoError(t, err)
	assert.Equal(t, rebootRequest{Switch: "1", BootID: "one", At: m.now, Target: rebootTarget(sw), Count: 1}, record)

	m.now = m.now.Add(rebootPatience - time.Second)
	assert.Nil(t, f.reboot(t.Context(), sw))
	assert.Equal(t, 1, m.reboots)
	m.now = m.now.Add(time.Second)
	assert.Nil(t, f.reboot(t.Context(), sw))
	assert.Equal(t, 2, m.reboots)
	record, _, err = f.readReboot()
	require.NoError(t, err)
	assert.Equal(t, 1, record.Count, "it is the same reboot")

	// Another switch to the same profile counts, one to another profile does not.
	assert.Nil(t, f.reboot(t.Context(), needingReboot("2", "h")))
	task := f.reboot(t.Context(), needingReboot("3", "h"))
	require.NotNil(t, task)
	assert.Equal(t, v1beta1.Task{Phase: v1beta1.TaskFailed, Reason: names.ReasonRebootRequired, Message: "the node was rebooted 2 times for profile p, which still could not be applied; find out what fails after a boot, then change the profile or its policy"}, *task)
	assert.Equal(t, 3, m.reboots)
	assert.Nil(t, f.reboot(t.Context(), needingReboot("4", "other")))
	record, _, err = f.readReboot()
	require.NoError(t, err)
	assert.Equal(t, 1, record.Count)
}

func TestRebootThatIsImpossible(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*machine, *Follower)
		want   string
	}{
		"no boot ID": {func(m *machine, _ *Follower) { m.boot = "" }, "the node cannot be rebooted: its boot ID cannot be read, so it is impossible to tell whether it was rebooted"},
		"refused":    {func(m *machine, _ *Follower) { m.err = errors.New("no systemd") }, "the node cannot be rebooted: no systemd"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &machine{boot: "one"}
			f := following(t, m)
			test.change(m, f)
			task := f.reboot(t.Context(), needingReboot("1", "h"))
			require.NotNil(t, task)
			assert.Equal(t, v1beta1.Task{Phase: v1beta1.TaskFailed, Reason: names.ReasonRebootFailed, Message: test.want}, *task)
			assert.NoFileExists(t, f.RebootFile, "it does not count")
		})
	}
	m := &machine{boot: "one"}
	f := following(t, m)
	require.NoError(t, os.WriteFile(f.RebootFile, []byte("{"), 0o600))
	task := f.reboot(t.Context(), needingReboot("1", "h"))
	require.NotNil(t, task)
	assert.Contains(t, task.Message, "the node cannot be rebooted: read the record of the last reboot from "+f.RebootFile)
	assert.Zero(t, m.reboots, "without a record it might reboot again and again")
}

// The pauses before the profile is restored again grow up to a limit, and end when it is.
func TestPausesOfRestoring(t *testing.T) {
	f := following(t, &machine{})
	for _, pause := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, lastRestore, lastRestore} {
		f.reportRestored(t.Context(), errors.New("EIO"))
		assert.Equal(t, pause, f.restorePause)
		assert.WithinDuration(t, time.Now().Add(pause), f.restoreAgain, 30*time.Second)
		require.EqualError(t, f.notRestored, "EIO")
	}
	f.reportRestored(t.Context(), nil)
	assert.NoError(t, f.notRestored)
	assert.Zero(t, f.restoreAgain)
}

// The report is applied to status.node alone.
func TestWriteReport(t *testing.T) {
	nodes := clientfake.New()
	var patch clienttesting.PatchAction
	var answer error
	clientfake.React(&nodes.Fake, "patch", "gpunodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch = action.(clienttesting.PatchAction)
		return true, &v1beta1.GPUNode{}, answer
	})
	report := &v1beta1.NodeReport{BootID: "boot"}
	require.NoError(t, writeReport(t.Context(), nodes.GPUNodes(), "node-a", report))
	assert.Equal(t, []string{"node-a", "status", string(types.ApplyPatchType)}, []string{patch.GetName(), patch.GetSubresource(), string(patch.GetPatchType())})
	assert.Contains(t, string(patch.GetPatch()), `{"apiVersion":"tranche.dev/v1beta1","kind":"GPUNode","metadata":{"name":"node-a"},"status":{"node":{`)
	answer = errors.New("no answer")
	require.EqualError(t, writeReport(t.Context(), nodes.GPUNodes(), "node-a", report), "report in the status of GPUNode node-a: no answer")
}

// How a GPU is described that does not answer, and what of its profile is not applied.
func TestReportedModes(t *testing.T) {
	f := &Follower{reported: &v1beta1.NodeReport{GPUs: []v1beta1.GPUReport{{Name: "gpu-0000-01-00-0", GPUModes: v1beta1.GPUModes{MIGMode: v1beta1.MIGModeEnabled}}}}}
	known, other := &inventory.GPU{GPU: gpu.GPU{PCIAddress: "0000:01:00.0"}}, &inventory.GPU{GPU: gpu.GPU{PCIAddress: "0000:02:00.0"}}
	assert.Equal(t, []v1beta1.GPUModes{gpunodes.MIGOn, {}, gpunodes.MIGOn, gpunodes.MIGOff, gpunodes.XCP("CPX", "NPS1"), {}}, []v1beta1.GPUModes{
		f.reportedModes(known, nil), f.reportedModes(other, nil), f.reportedModes(other, &gpu.Modes{MIG: gpu.MIGOn}), f.reportedModes(known, &gpu.Modes{MIG: gpu.MIGOff}),
		f.reportedModes(known, &gpu.Modes{Compute: "CPX", Memory: "NPS1"}), f.reportedModes(known, &gpu.Modes{}),
	})
	assert.Empty(t, (&Follower{}).reportedModes(known, nil))
}

// What is created is deleted with the node.
func TestNewGPUNode(t *testing.T) {
	f := following(t, &machine{})
	f.TakeOver()
	node, err := f.Nodes.Create(t.Context(), newGPUNode(f.Node), metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, metav1.ObjectMeta{Name: "node-a", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-a", UID: "node-uid"}}}, node.ObjectMeta)
	f.readVersion = "5"
	for version, older := range map[string]bool{"4": true, "5": false, "10": false, "": false} {
		assert.Equal(t, older, f.isOlder(&v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}), version)
	}
}

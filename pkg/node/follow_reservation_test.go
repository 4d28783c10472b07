package node

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// defragment puts a defragmentation into the GPUNode.
func (s *steered) defragment(d *v1beta1.Defragmentation) {
	s.t.Helper()
	s.written.Lock()
	defer s.written.Unlock()
	node, err := s.get()
	require.NoError(s.t, err)
	node.Status.Defragmentation = d
	require.NoError(s.t, s.update(node))
}

// reservedFor are the names of the devices of the first GPU that are tainted for a
// defragmentation.
func reservedFor(t *testing.T, m *machine, id string) []string {
	t.Helper()
	var devices []string
	for _, d := range devicesOn(t, m, card0) {
		if slices.ContainsFunc(d.Taints, func(taint resourceapi.DeviceTaint) bool {
			return taint.Key == names.TaintReserved && taint.Value == id && taint.Effect == resourceapi.DeviceTaintEffectNoSchedule
		}) {
			devices = append(devices, d.Name)
		}
	}
	return devices
}

// Reserved devices, and no others, are tainted until the defragmentation ends.
func TestReservation(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	reserved := []string{card0, small0}
	d := &v1beta1.Defragmentation{
		ID: "a", State: v1beta1.DefragmentationReserving, ReservedDevices: append(reserved, "gpu-of-another-node"),
		DeadlineTime: metav1.NewMicroTime(time.Now().Add(time.Hour)),
	}
	s.defragment(d)
	require.Eventually(t, func() bool { return len(reservedFor(t, s.machine, "a")) == len(reserved) }, nodetest.Patience, nodetest.Tick)
	assert.ElementsMatch(t, reserved, reservedFor(t, s.machine, "a"))

	ended := d.DeepCopy()
	ended.EndTime = new(metav1.NowMicro())
	s.defragment(ended)
	require.Eventually(t, func() bool { return len(reservedFor(t, s.machine, "a")) == 0 }, nodetest.Patience, nodetest.Tick)
}

// The plugin ends a reservation at its deadline, whether or not a controller runs.
func TestReservationEndsAtItsDeadline(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	s.defragment(&v1beta1.Defragmentation{
		ID: "b", State: v1beta1.DefragmentationReserving, ReservedDevices: []string{small0},
		DeadlineTime: metav1.NewMicroTime(time.Now().Add(2 * time.Second)),
	})
	require.Eventually(t, func() bool { return len(reservedFor(t, s.machine, "b")) == 1 }, nodetest.Patience, nodetest.Tick)
	require.Eventually(t, func() bool { return len(reservedFor(t, s.machine, "b")) == 0 }, nodetest.Patience, nodetest.Tick)
}

// The first publication of a new plugin has the taints of a reservation.
func TestReservationSurvivesARestart(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	_, stop := s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	s.defragment(&v1beta1.Defragmentation{
		ID: "c", State: v1beta1.DefragmentationEvicting, ReservedDevices: []string{small0},
		DeadlineTime: metav1.NewMicroTime(time.Now().Add(time.Hour)),
	})
	require.Eventually(t, func() bool { return len(reservedFor(t, s.machine, "c")) == 1 }, nodetest.Patience, nodetest.Tick)
	stop()
	nodetest.OnSliceWrite(s.api, func(slice *resourceapi.ResourceSlice) error {
		for _, d := range slice.Spec.Devices {
			assert.True(t, d.Name != small0 || len(d.Taints) > 0, "published without the taint")
		}
		return nil
	})
	s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	assert.Equal(t, []string{small0}, reservedFor(t, s.machine, "c"))
}

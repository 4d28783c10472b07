package v1alpha1_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

func TestAwaitsPlugin(t *testing.T) {
	status := v1alpha1.GPUNodeStatus{State: v1alpha1.Planning}
	assert.False(t, status.AwaitsPlugin(nil), "there is no switch")
	status.Switch = &v1alpha1.Switch{ID: "2"}
	for state, asks := range map[v1alpha1.State]bool{
		v1alpha1.Idle: false, v1alpha1.Planning: true, v1alpha1.Waiting: false, v1alpha1.Tainted: false, v1alpha1.Draining: false,
		v1alpha1.Applying: true, v1alpha1.Rebooting: true, v1alpha1.Verifying: false, v1alpha1.RollingBack: true, v1alpha1.Failed: false,
	} {
		status.State = state
		assert.Equal(t, asks, status.AwaitsPlugin(nil), state)
		assert.Equal(t, asks, status.AwaitsPlugin(&v1alpha1.Task{Switch: "1", State: state}), "%s of a switch before", state)
		assert.Equal(t, asks, status.AwaitsPlugin(&v1alpha1.Task{Switch: "2", State: "Other"}), "%s after another state", state)
		assert.False(t, status.AwaitsPlugin(&v1alpha1.Task{Switch: "2", State: state}), "%s is answered", state)
	}
}

// Each order of taints is answered by a plan of its own.
func TestAwaitsAnswerToEachOrder(t *testing.T) {
	status := v1alpha1.GPUNodeStatus{State: v1alpha1.Tainted, Switch: &v1alpha1.Switch{ID: "2", Order: 2}}
	assert.True(t, status.AwaitsPlugin(&v1alpha1.Task{Switch: "2", State: v1alpha1.Tainted, Order: 1}))
	assert.False(t, status.AwaitsPlugin(&v1alpha1.Task{Switch: "2", State: v1alpha1.Tainted, Order: 2}))
	assert.True(t, status.AwaitsPlugin(&v1alpha1.Task{Switch: "2", State: v1alpha1.Planning, Order: 2}))
	assert.True(t, status.AwaitsPlugin(nil))
	status.State = v1alpha1.Applying
	assert.False(t, status.AwaitsPlugin(&v1alpha1.Task{Switch: "2", State: v1alpha1.Applying}), "the order is for Tainted only")
}

func TestTarget(t *testing.T) {
	sw := v1alpha1.Switch{From: v1alpha1.ProfileSnapshot{Profile: "old"}, To: v1alpha1.ProfileSnapshot{Profile: "new"}}
	assert.Equal(t, &sw.To, sw.Target(v1alpha1.Planning))
	assert.Equal(t, &sw.To, sw.Target(v1alpha1.Applying))
	assert.Equal(t, &sw.From, sw.Target(v1alpha1.RollingBack))
}

func TestTaintsAreOrderedWhileASwitchIsUnderWay(t *testing.T) {
	for state, orders := range map[v1alpha1.State]bool{
		v1alpha1.Idle: false, v1alpha1.Planning: true, v1alpha1.Waiting: true, v1alpha1.Tainted: true, v1alpha1.Draining: true,
		v1alpha1.Applying: true, v1alpha1.Rebooting: true, v1alpha1.Verifying: true, v1alpha1.RollingBack: true, v1alpha1.Failed: false,
	} {
		status := v1alpha1.GPUNodeStatus{State: state}
		assert.False(t, status.OrdersTaints(), "%s without a switch", state)
		status.Switch = &v1alpha1.Switch{ID: "2", Order: 1}
		assert.False(t, status.OrdersTaints(), "%s of a switch that changes no GPU", state)
		status.Switch.GPUs = []string{"gpu-0000-01-00-0"}
		assert.Equal(t, orders, status.OrdersTaints(), state)
	}
}

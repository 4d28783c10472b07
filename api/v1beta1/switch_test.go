package v1beta1_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

func TestAwaitsPlugin(t *testing.T) {
	status := v1beta1.GPUNodeStatus{State: v1beta1.Planning}
	assert.False(t, status.AwaitsPlugin(nil), "there is no switch")
	status.Switch = &v1beta1.Switch{ID: "2"}
	for state, asks := range map[v1beta1.State]bool{
		v1beta1.Idle: false, v1beta1.Planning: true, v1beta1.Waiting: false, v1beta1.Tainted: true, v1beta1.Draining: false,
		v1beta1.Applying: true, v1beta1.Rebooting: true, v1beta1.Verifying: false, v1beta1.RollingBack: true, v1beta1.Failed: false,
	} {
		status.State = state
		assert.Equal(t, asks, status.AwaitsPlugin(nil), state)
		assert.Equal(t, asks, status.AwaitsPlugin(&v1beta1.Task{SwitchID: "1", State: state}), "%s of a switch before", state)
		assert.Equal(t, asks, status.AwaitsPlugin(&v1beta1.Task{SwitchID: "2", State: "Other"}), "%s after another state", state)
		assert.False(t, status.AwaitsPlugin(&v1beta1.Task{SwitchID: "2", State: state}), "%s is answered", state)
	}
}

// Each order of taints is answered by a plan of its own.
func TestAwaitsAnswerToEachOrder(t *testing.T) {
	status := v1beta1.GPUNodeStatus{State: v1beta1.Tainted, Switch: &v1beta1.Switch{ID: "2", TaintGeneration: 2}}
	assert.True(t, status.AwaitsPlugin(&v1beta1.Task{SwitchID: "2", State: v1beta1.Tainted, TaintGeneration: 1}))
	assert.False(t, status.AwaitsPlugin(&v1beta1.Task{SwitchID: "2", State: v1beta1.Tainted, TaintGeneration: 2}))
	assert.True(t, status.AwaitsPlugin(&v1beta1.Task{SwitchID: "2", State: v1beta1.Planning, TaintGeneration: 2}))
	assert.True(t, status.AwaitsPlugin(nil))
	status.State = v1beta1.Applying
	assert.False(t, status.AwaitsPlugin(&v1beta1.Task{SwitchID: "2", State: v1beta1.Applying}), "the order is for Tainted only")
}

func TestTarget(t *testing.T) {
	sw := v1beta1.Switch{From: v1beta1.ProfileSnapshot{ProfileName: "old"}, To: v1beta1.ProfileSnapshot{ProfileName: "new"}}
	assert.Equal(t, &sw.To, sw.Target(v1beta1.Planning))
	assert.Equal(t, &sw.To, sw.Target(v1beta1.Applying))
	assert.Equal(t, &sw.From, sw.Target(v1beta1.RollingBack))
}

func TestTaintsAreOrderedWhileASwitchIsUnderWay(t *testing.T) {
	for state, orders := range map[v1beta1.State]bool{
		v1beta1.Idle: false, v1beta1.Planning: true, v1beta1.Waiting: true, v1beta1.Tainted: true, v1beta1.Draining: true,
		v1beta1.Applying: true, v1beta1.Rebooting: true, v1beta1.Verifying: true, v1beta1.RollingBack: true, v1beta1.Failed: false,
	} {
		status := v1beta1.GPUNodeStatus{State: state}
		assert.False(t, status.RequestsTaints(), "%s without a switch", state)
		status.Switch = &v1beta1.Switch{ID: "2", TaintGeneration: 1}
		assert.False(t, status.RequestsTaints(), "%s of a switch that changes no GPU", state)
		status.Switch.GPUs = []string{"gpu-0000-01-00-0"}
		assert.Equal(t, orders, status.RequestsTaints(), state)
	}
}

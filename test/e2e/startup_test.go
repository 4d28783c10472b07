package e2e

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
)

// A node keeps its start-up taint while its profile is missing, and loses it when the profile
// is applied.
func TestStartupTaint(t *testing.T) {
	s := start(t)
	const profile = "startup"
	s.labelProfile(nodeA, profile)
	s.waitGPUNode(nodeA, "lacks its profile", readyBecause(names.ReasonProfileNotFound))
	t.Cleanup(func() { _, _ = s.try("kubectl", "taint", "node", nodeA, names.TaintStartup+"-") })
	s.kubectl("taint", "node", nodeA, names.TaintStartup+":NoSchedule")
	tainted := func() bool {
		node, err := s.client.CoreV1().Nodes().Get(s.ctx, nodeA, metav1.GetOptions{})
		require.NoError(t, err)
		return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == names.TaintStartup })
	}
	require.True(t, tainted())
	s.setProfile(profile, "{mig: {mode: Disabled}}")
	s.waitFollows(nodeA, profile)
	s.eventually("the start-up taint goes", func() (bool, string) { return !tainted(), "it is there" })
}

package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// manage starts the controller as the program does, against an API server by HTTP.
func manage(t *testing.T, w *world) *prometheus.Registry {
	scheme, err := NewScheme()
	require.NoError(t, err)
	api, options := serveAPI(t, w), w.opts
	mgr, err := manager.New(api, manager.Options{
		Scheme: scheme, Cache: options.CacheOptions(), Logger: logr.Discard(),
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	options.Registry, options.Workers = registry, 4
	ctx, stop := context.WithCancel(t.Context())
	require.NoError(t, Setup(ctx, mgr, options))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-ended:
			assert.NoError(t, err)
		case <-time.After(time.Minute):
			assert.Fail(t, "the controller does not end")
		}
	})
	return registry
}

func TestTheControllerByHTTP(t *testing.T) {
	w := newWorld(t)
	n := w.addNode("node-a")
	w.profile("cpx")
	registry := manage(t, w)

	plugin := time.NewTicker(20 * time.Millisecond)
	defer plugin.Stop()
	until := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; {
			<-plugin.C
			w.clock.Step(100 * time.Millisecond)
			n.plugin(w)
			if done() {
				return
			}
			require.True(t, time.Now().Before(end), "%s: %+v", what, w.gpuNode("node-a").Status)
		}
	}
	until("node and controller meet", func() bool { return inProfile("")(w.gpuNode("node-a")) })

	// A change of a label, of a profile and of a taint each wake it.
	w.wants("node-a", "cpx")
	until("the label is followed", func() bool { return inProfile("cpx")(w.gpuNode("node-a")) })
	w.profile("cpx", func(p *v1alpha1.PartitionProfile) { p.Spec.Rules = nil })
	until("the profile that has changed is followed", func() bool {
		g := w.gpuNode("node-a")
		return inProfile("cpx")(g) && len(g.Status.Applied.Rules) == 0
	})
	w.changeNode("node-a", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: names.TaintRepartitioning, Effect: corev1.TaintEffectNoSchedule}}
	})
	until("a taint that is not needed goes", func() bool { return !hasNodeTaint(w.node("node-a")) })
	w.clean("node-a")

	count, err := testutil.GatherAndCount(registry, "tranche_gpu_nodes")
	require.NoError(t, err)
	assert.Equal(t, len(allStates), count)
	// The place in the budget is returned after the status is written.
	var differs error
	assert.Eventually(t, func() bool {
		differs = testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP tranche_switching_nodes Nodes without a PartitionPlan that are in a switch, as maxUnavailable counts them.
# TYPE tranche_switching_nodes gauge
tranche_switching_nodes 0
# HELP tranche_switching_nodes_limit Nodes without a PartitionPlan that may be in a switch at once.
# TYPE tranche_switching_nodes_limit gauge
tranche_switching_nodes_limit 1
`), "tranche_switching_nodes", "tranche_switching_nodes_limit")
		return differs == nil
	}, time.Minute, 10*time.Millisecond)
	assert.NoError(t, differs)
}

// A cluster may have no node with GPUs for a while: the alert for a controller that does
// not work must not be told then.
func TestALeaderWithoutNodesTellsThatItWorks(t *testing.T) {
	registry := manage(t, newWorld(t))
	require.Eventually(t, func() bool {
		count, err := testutil.GatherAndCount(registry, "tranche_switching_nodes_limit")
		return err == nil && count == 1
	}, time.Minute, 10*time.Millisecond)
}

func TestWhatWakesWhom(t *testing.T) {
	w := newWorld(t)
	w.addNode("node-a")
	r := w.r
	node := func(name string, change ...func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, c := range change {
			c(n)
		}
		return n
	}
	claim := &resourceapi.ResourceClaim{}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
		{Driver: names.DriverName, Pool: "node-a", Device: gpuA}, {Driver: names.DriverName, Pool: "node-b", Device: gpuA}, {Driver: "other", Pool: "node-c"},
	}}}
	ctx := t.Context()
	assert.Len(t, r.ofNode(ctx, node("node-a")), 1)
	assert.Empty(t, r.ofNode(ctx, node("cpu-only")))
	assert.Len(t, r.ofNode(ctx, node("cpu-only", func(n *corev1.Node) { n.Labels = map[string]string{DefaultPauseLabels[0]: names.PausedValue} })), 1)
	assert.Empty(t, r.ofNode(ctx, claim))
	assert.Len(t, r.ofProfile(ctx, nil), 1)
	assert.Empty(t, r.ofClaim(ctx, claim), "no node waits for it")
	g := w.gpuNode("node-a")
	g.Status.State, g.Status.Switch = v1alpha1.Draining, &v1alpha1.Switch{GPUs: []string{gpuA}}
	g.Status.Switch.To.Source, g.Status.Switch.From.Source = v1alpha1.FromLabel, v1alpha1.FromLabel
	require.NoError(t, w.api.Status().Update(ctx, g))
	assert.Equal(t, "node-a", r.ofClaim(ctx, claim)[0].Name)
	assert.Len(t, r.ofClaim(ctx, claim), 1)
}

func TestTheCachesKeepLittle(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "a", ResourceVersion: "1", Labels: map[string]string{names.LabelProfile: "cpx", "kubernetes.io/hostname": "a"},
		Annotations: map[string]string{"much": "text"},
	}}
	n.Spec.Taints = []corev1.Taint{{Key: "a"}}
	n.Status.Images = make([]corev1.ContainerImage, 50)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}, {Type: corev1.NodeDiskPressure}}
	got, err := trimNode(n)
	require.NoError(t, err)
	want := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1", Labels: n.Labels}}
	want.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	want.Spec.Taints = n.Spec.Taints
	assert.Equal(t, want, got)
	same, err := trimNode("a tombstone")
	require.NoError(t, err)
	assert.Equal(t, "a tombstone", same)
}

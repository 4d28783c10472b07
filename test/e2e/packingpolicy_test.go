package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tranche-dev/tranche/api/names"
)

// The default scheduler places replicas on one node and one GPU, if pods prefer nodes with such
// pods. Without, it spreads them. The policy adds the preference to pods that ask for GPUs, also
// where another policy makes the claim, and leaves all others as they are.
func TestPodAffinity(t *testing.T) {
	onlyAtNight(t)
	tr := startTranslator(t)
	onNodes, _ := tr.replicate("before", tr.smallPod(""))
	assert.Equal(t, []string{nodeA, nodeC}, onNodes)
	tr.set("podAffinity.enabled=true")
	tr.waitMutated("pods with GPUs get an affinity", func(p *corev1.Pod) bool { return p.Labels[names.LabelPack] == "true" })
	_, gpus := tr.replicate("after", tr.smallPod(""))
	assert.Len(t, gpus, 1)

	pack := func(value string) change {
		return func(p *corev1.Pod) { p.Labels = map[string]string{names.LabelPack: value} }
	}
	byClaim := withClaim("gpu", "mine")
	gathers := &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
		Weight: 100,
		PodAffinityTerm: corev1.PodAffinityTerm{
			TopologyKey:       corev1.LabelHostname,
			LabelSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{names.LabelPack: "true"}},
			NamespaceSelector: &metav1.LabelSelector{},
		},
	}}}
	nodes := &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
		Weight:     1,
		Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: corev1.NodeSelectorOpExists}}},
	}}}
	for name, test := range map[string]struct {
		project string
		pod     []change
	}{
		"a claim":                   {"other", []change{byClaim}},
		"a MIG profile":             {"other", []change{withLimits(1, "nvidia.com/mig-1g.10gb", "1")}},
		"an AMD GPU, in init":       {"other", []change{withLimits(-1, "amd.com/gpu", "1")}},
		"a class":                   {"other", []change{withLimits(0, "deviceclass.resource.kubernetes.io/gpu-mig.tranche.dev", "1")}},
		"KAI's annotation":          {"kai", []change{withAnnotations("gpu-fraction", "0.5")}},
		"HAMi's limit":              {"hami", []change{withLimits(0, "nvidia.com/gpumem", "1000")}},
		"other labels":              {"other", []change{byClaim, func(p *corev1.Pod) { p.Labels = map[string]string{"app": "x"} }}},
		"the label, copied":         {"other", []change{byClaim, pack("true")}},
		"an affinity for nodes":     {"other", []change{byClaim, func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{NodeAffinity: nodes} }}},
		"a preference for no nodes": {"other", []change{byClaim, func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{} }}},
	} {
		t.Run(name, func(t *testing.T) {
			before := podOf(test.pod...)
			after, err := tr.would(test.project, before)
			require.NoError(t, err)
			assert.Equal(t, "true", after.Labels[names.LabelPack])
			assert.Equal(t, before.Labels["app"], after.Labels["app"])
			require.NotNil(t, after.Spec.Affinity)
			assert.Equal(t, gathers, after.Spec.Affinity.PodAffinity)
			if before.Spec.Affinity != nil {
				assert.Equal(t, before.Spec.Affinity.NodeAffinity, after.Spec.Affinity.NodeAffinity)
			}
			// What selects no pods keeps the scheduler's own constraints out.
			require.Len(t, after.Spec.TopologySpreadConstraints, 1)
			constraint := after.Spec.TopologySpreadConstraints[0]
			require.NotNil(t, constraint.LabelSelector, "the API server warns of constraints without one")
			assert.Equal(t, map[string]string{names.LabelPack: "none"}, constraint.LabelSelector.MatchLabels)
			assert.Equal(t, corev1.ScheduleAnyway, constraint.WhenUnsatisfiable)
		})
	}

	term := []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}}
	for name, changes := range map[string][]change{
		"no GPU":        {withLimits(0, "example.com/nic", "1", "nvidia.com/rdma", "1")},
		"another class": {withLimits(0, "deviceclass.resource.kubernetes.io/nic.example.com", "1")},
		"left out":      {byClaim, pack("false")},
		"a node":        {byClaim, func(p *corev1.Pod) { p.Spec.NodeName = "node-a" }},
		"affinity for pods": {byClaim, func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term}}
		}},
		"antiaffinity to pods": {byClaim, func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			before := podOf(changes...)
			after, err := tr.would("other", before)
			require.NoError(t, err)
			assert.Equal(t, before.Labels, after.Labels)
			assert.Equal(t, before.Spec.Affinity, after.Spec.Affinity)
			assert.Empty(t, after.Spec.TopologySpreadConstraints)
		})
	}

	t.Run("without warnings", func(t *testing.T) {
		config, warnings := rest.CopyConfig(tr.config), &warned{}
		config.WarningHandler = warnings
		pods := kubernetes.NewForConfigOrDie(config).CoreV1().Pods(tr.namespaces["other"])
		_, err := pods.Create(tr.ctx, podOf(byClaim), dryCreate)
		require.NoError(t, err)
		assert.Empty(t, warnings.all)
	})

	t.Run("in any order of the policies", func(t *testing.T) {
		for round := range rounds {
			tr.shuffle("tranche-pod-affinity", round)
			for project, ask := range map[string]change{"kai": withAnnotations("gpu-fraction", "0.5"), "hami": withLimits(0, "nvidia.com/gpumem", "1000")} {
				after, err := tr.would(project, podOf(ask))
				require.NoError(t, err)
				require.NotNil(t, after.Spec.Affinity, "round %d, %s", round, project)
				assert.Equal(t, gathers, after.Spec.Affinity.PodAffinity)
			}
		}
	})

	t.Run("constraints of its own", func(t *testing.T) {
		own := []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: term[0].LabelSelector}}
		after, err := tr.would("other", podOf(byClaim, func(p *corev1.Pod) { p.Spec.TopologySpreadConstraints = own }))
		require.NoError(t, err)
		assert.Equal(t, own, after.Spec.TopologySpreadConstraints)
		assert.Equal(t, gathers, after.Spec.Affinity.PodAffinity)
	})
}

// warned keeps the warnings of the API server.
type warned struct{ all []string }

func (w *warned) HandleWarningHeader(_ int, _, text string) { w.all = append(w.all, text) }

// The policy names the second scheduler on pods that ask for GPUs, also where another policy makes
// the claim and removes the name of a scheduler.
func TestSchedulerOfPodsWithGPUs(t *testing.T) {
	onlyAtNight(t)
	tr := startTranslator(t)
	if tr.lab == nil {
		tr.loadScheduler()
	}
	tr.set("scheduler.enabled=true,scheduler.assignment.enabled=true")
	tr.waitMutated("pods with GPUs get the second scheduler", func(p *corev1.Pod) bool { return p.Spec.SchedulerName == packingScheduler })
	byClaim := withClaim("gpu", "mine")
	scheduler := func(project string, changes ...change) string {
		p, err := tr.would(project, podOf(changes...))
		require.NoError(t, err)
		return p.Spec.SchedulerName
	}
	byAnnotation := []change{withAnnotations("gpu-fraction", "0.5"), byScheduler("kai-scheduler")}
	assert.Equal(t, packingScheduler, scheduler("other", withLimits(-1, "nvidia.com/mig-1g.10gb", "1")))
	assert.Equal(t, packingScheduler, scheduler("other", byClaim, byScheduler(corev1.DefaultSchedulerName)))
	assert.Equal(t, packingScheduler, scheduler("kai", byAnnotation...))
	for round := range rounds {
		tr.shuffle("tranche-scheduler", round)
		assert.Equal(t, packingScheduler, scheduler("kai", byAnnotation...), "round %d", round)
	}
	assert.Equal(t, "another", scheduler("other", byClaim, byScheduler("another")))
	assert.Equal(t, corev1.DefaultSchedulerName, scheduler("other"))
	assert.Equal(t, corev1.DefaultSchedulerName, scheduler("other", byClaim, func(p *corev1.Pod) { p.Spec.NodeName = nodeA }))
}

// rounds is how many orders of the policies are tried. In each, a policy that is not invoked again fails with
// a probability of a half at least.
const rounds = 6

// shuffle has the API server order its policies anew, which it does at random when one changes. The policy
// leaves alone pods of a name afterwards, which shows that the change has arrived.
func (tr *translator) shuffle(policy string, round int) {
	tr.t.Helper()
	name := fmt.Sprintf("round-%d", round)
	tr.kubectl("patch", "mutatingadmissionpolicy", policy, "--type=json", "-p",
		fmt.Sprintf(`[{"op": "add", "path": "/spec/matchConditions/-", "value": {"name": %q, "expression": "object.metadata.name != '%[1]s'"}}]`, name))
	left := podOf(withClaim("gpu", "mine"), func(p *corev1.Pod) { p.Name = name })
	tr.eventually("the policy has changed", func() (bool, string) {
		after, err := tr.would("other", left)
		return err == nil && after.Spec.Affinity == nil && after.Spec.SchedulerName == corev1.DefaultSchedulerName, fmt.Sprint(err)
	})
}

package helm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
)

func requireOfController(t *testing.T, p policy) {
	t.Helper()
	for user, applies := range map[string]bool{
		"system:serviceaccount:tranche-system:tranche-controller":     true,
		"system:serviceaccount:tranche-system:tranche-uninstall":      true,
		"system:serviceaccount:tranche-system:tranche-kubelet-plugin": false,
		"system:serviceaccount:elsewhere:tranche-controller":          false,
		"kubernetes-admin": false,
	} {
		require.Equal(t, applies, p.appliesTo(user), user)
	}
}

// TestControllerNodesPolicy: of a node, the controller changes its taint, and labels
// that pause monitoring pods.
func TestControllerNodesPolicy(t *testing.T) {
	policy := policyNamed(t, decode(t, render(t, chart)), "-controller-nodes")
	requireOfController(t, policy)
	const (
		dcgm, other = "nvidia.com/gpu.deploy.dcgm", "example.com/other"
		labels      = "tranche-controller may change labels of a node only from true to paused-for-tranche and back, and only these: " +
			"nvidia.com/gpu.deploy.dcgm-exporter, nvidia.com/gpu.deploy.dcgm, nvidia.com/gpu.deploy.nvsm, " +
			"nvidia.com/gpu.deploy.gpu-feature-discovery, nvidia.com/gpu.deploy.client, tranche.dev/gpu-monitoring"
		taint = "tranche-controller may change only the taint tranche.dev/switching:NoSchedule of a node, and remove tranche.dev/startup"
		rest  = "tranche-controller may change only its taints and some labels of a node"
	)
	ours := corev1.Taint{Key: names.TaintNodeSwitching, Value: "cpx", Effect: corev1.TaintEffectNoSchedule}
	theirs := corev1.Taint{Key: "example.com/dedicated", Value: "x", Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{}}
	bare := func() *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{dcgm: "true", other: "true", "zone": "1"}, Annotations: map[string]string{"a": "b"}},
			Spec:       corev1.NodeSpec{PodCIDR: "10.0.0.0/24", PodCIDRs: []string{"10.0.0.0/24"}, ProviderID: "x", Taints: []corev1.Taint{theirs}},
		}
	}
	with := func(change func(*corev1.Node)) *corev1.Node {
		n := bare()
		change(n)
		return n
	}
	label := func(key, value string) *corev1.Node { return with(func(n *corev1.Node) { n.Labels[key] = value }) }
	taints := func(taints ...corev1.Taint) *corev1.Node {
		return with(func(n *corev1.Node) { n.Spec.Taints = taints })
	}
	switching := with(func(n *corev1.Node) {
		n.Spec.Taints, n.Labels[dcgm] = []corev1.Taint{theirs, ours}, names.PausedValue
	})
	startup := corev1.Taint{Key: names.TaintStartup, Effect: corev1.TaintEffectNoSchedule}
	noExecute, another := ours, ours
	noExecute.Effect, another.Value = corev1.TaintEffectNoExecute, "spx"
	for name, test := range map[string]struct {
		before, after *corev1.Node
		want          string
	}{
		"taints and pauses": {bare(), switching, ""},
		"takes it back":     {switching, bare(), ""},
		"another profile": {switching, with(func(n *corev1.Node) {
			n.Spec.Taints, n.Labels[dcgm] = []corev1.Taint{theirs, another}, names.PausedValue
		}), ""},
		"removes the start-up taint": {taints(theirs, startup), bare(), ""},
		"sets the start-up taint":    {bare(), taints(theirs, startup), taint},
		"no taints before":           {taints(), taints(ours), ""},
		"no taints after":            {taints(ours), taints(), ""},
		"nothing":                    {bare(), bare(), ""},
		"pauses another":             {bare(), label(other, names.PausedValue), labels},
		"lets another run":           {label(other, names.PausedValue), bare(), ""},
		"switches one off":           {bare(), label(dcgm, "false"), labels},
		"switches one on":            {label(dcgm, "false"), bare(), labels},
		"a new label":                {bare(), label("node-role.kubernetes.io/control-plane", ""), labels},
		"a label less":               {bare(), with(func(n *corev1.Node) { delete(n.Labels, "zone") }), labels},
		"all labels":                 {bare(), with(func(n *corev1.Node) { n.Labels = nil }), labels},
		"names a profile":            {bare(), label(names.LabelProfile, "cpx"), labels},
		"ends pods":                  {bare(), taints(theirs, noExecute), taint},
		"takes another's taint":      {bare(), taints(), taint},
		"another taint":              {bare(), taints(theirs, corev1.Taint{Key: "x", Effect: corev1.TaintEffectNoSchedule}), taint},
		"changes another's":          {bare(), taints(corev1.Taint{Key: theirs.Key, Value: "y", Effect: theirs.Effect, TimeAdded: theirs.TimeAdded}), taint},
		"cordons":                    {bare(), with(func(n *corev1.Node) { n.Spec.Unschedulable = true }), rest},
		"uncordons":                  {with(func(n *corev1.Node) { n.Spec.Unschedulable = true }), bare(), rest},
		"another address":            {bare(), with(func(n *corev1.Node) { n.Spec.PodCIDR = "10.1.0.0/24" }), rest},
		"another machine":            {bare(), with(func(n *corev1.Node) { n.Spec.ProviderID = "y" }), rest},
		"annotation":                 {bare(), with(func(n *corev1.Node) { n.Annotations["c"] = "d" }), rest},
		"finalizer":                  {bare(), with(func(n *corev1.Node) { n.Finalizers = []string{"x/y"} }), rest},
		"owner":                      {bare(), with(func(n *corev1.Node) { n.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }), rest},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, policy.refusal(replacing(test.before, test.after))) })
	}
	for _, operation := range []string{"CREATE", "DELETE"} {
		require.Equal(t, "tranche-controller may change nodes only, and this is "+operation, policy.refusal(write{operation: operation, before: bare(), after: bare()}))
	}
}

// TestNothingToPause: the list may be empty.
func TestNothingToPause(t *testing.T) {
	objects := decode(t, render(t, chart, "--set-json", "controller.pauseLabels=[]"))
	node := func(value string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{"tranche.dev/gpu-monitoring": value}}}
	}
	policy := policyNamed(t, objects, "-controller-nodes")
	require.Empty(t, policy.refusal(replacing(node(names.PausedValue), node("true"))))
	require.Equal(t, "tranche-controller may change labels of a node only from true to paused-for-tranche and back, and only these: ",
		policy.refusal(replacing(node("true"), node(names.PausedValue))))
}

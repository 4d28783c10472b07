package adopt

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

const (
	ours, mig, dcm, nos, older = names.LabelProfile, names.LabelMIGConfig, names.LabelGPUConfigProfile, names.LabelNos, names.LabelNosOlder
	enabled, kaiwo, sharing    = names.LabelKaiwoEnabled, names.LabelKaiwoProfile, names.LabelDevicePluginConfig
)

var (
	migConfigs = ConfigMap{"gpu-operator", "mig", "config.yaml"}
	dcmConfigs = ConfigMap{"kube-amd-gpu", "dcm", "config.json"}
	slices4    = ConfigMap{Namespace: "gpu-operator", Name: "slices"}
	// allProjects follows all projects, two of them by a ConfigMap.
	allProjects = Config{Projects: map[Project]ConfigMap{MIGParted: migConfigs, DeviceConfigManager: {}, Kaiwo: {}, Nos: {}, DevicePlugin: slices4}}
)

const (
	migConfig = "version: v1\nmig-configs:\n" +
		"  all-disabled:\n  - {devices: all, mig-enabled: false}\n" +
		"  All_1g:\n  - {devices: all, mig-enabled: true, mig-devices: {\"1g.10gb\": 7}}\n" +
		"  bad:\n  - {devices: 3, mig-enabled: true, mig-devices: {\"1g.10gb\": 7}}\n"
	dcmConfig = `{"gpu-config-profiles": {"mine": {"profiles": [{"computePartition": "CPX", "memoryPartition": "NPS1"}]}}}`
	four      = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
)

// place is an API server and an Adopter.
type place struct {
	*Adopter
	t   *testing.T
	api client.WithWatch
	// fail makes calls fail.
	fail   func(verb string, o client.Object) error
	writes int
	events *events.FakeRecorder
}

func newPlace(t *testing.T, config Config, objects ...client.Object) *place {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, v1beta1.AddToScheme(scheme))
	p := &place{t: t, events: events.NewFakeRecorder(10)}
	refused := func(verb string, o client.Object) error {
		if verb != "get" {
			p.writes++
		}
		if made, ok := o.(*v1beta1.PartitionProfile); ok && verb != "get" {
			made.Spec.Default() // as the API server does
		}
		if p.fail == nil {
			return nil
		}
		return p.fail(verb, o)
	}
	p.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	c := interceptor.NewClient(p.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := refused("get", o); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := refused("create", o); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := refused("update", o); err != nil {
				return err
			}
			return c.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := refused("patch", o); err != nil {
				return err
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	})
	p.Adopter = New(c, c, config)
	p.Events = p.events
	return p
}

func profileNamed(name string) *v1beta1.PartitionProfile {
	return &v1beta1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.PartitionProfileSpec{
		Rules: []v1beta1.Rule{{MIG: &v1beta1.MIG{Mode: v1beta1.MIGDisabled}}},
	}}
}

func configMapOf(c ConfigMap, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}, Data: data}
}

func nodeWith(labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "1", Labels: labels}}
}

// adopt has labels adopted, and returns the GPUNode that the API server then has.
func (p *place) adopt(labels map[string]string, planned bool) (*v1beta1.GPUNode, *Result) {
	p.t.Helper()
	node := p.node(labels)
	g := p.gpuNode()
	r, err := p.Adopt(p.t.Context(), g, node, planned)
	require.NoError(p.t, err)
	now := p.gpuNode()
	assert.Equal(p.t, now, g, "the caller goes on with what was written")
	writes := p.writes
	again, err := p.Adopt(p.t.Context(), g, node, planned)
	require.NoError(p.t, err)
	assert.Equal(p.t, r, again)
	assert.Equal(p.t, writes, p.writes, "nothing is left to write")
	return now, r
}

// node is the Node with labels.
func (p *place) node(labels map[string]string) *corev1.Node {
	p.t.Helper()
	var node corev1.Node
	require.NoError(p.t, p.api.Get(p.t.Context(), client.ObjectKey{Name: "node-a"}, &node))
	node.Labels = labels
	require.NoError(p.t, p.api.Update(p.t.Context(), &node))
	return &node
}

func (p *place) gpuNode() *v1beta1.GPUNode {
	var g v1beta1.GPUNode
	require.NoError(p.t, p.api.Get(p.t.Context(), client.ObjectKey{Name: "node-a"}, &g))
	return &g
}

func (p *place) profile(name string) *v1beta1.PartitionProfile {
	var got v1beta1.PartitionProfile
	require.NoError(p.t, p.api.Get(p.t.Context(), client.ObjectKey{Name: name}, &got))
	return &got
}

func gpuNodeOf(spec v1beta1.GPUNodeSpec) *v1beta1.GPUNode {
	return &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Spec: spec}
}

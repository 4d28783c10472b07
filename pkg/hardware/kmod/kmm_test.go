package kmod

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/test/clientfake"
)

// kmm is the operator with these NodeModulesConfigs.
func kmm(t *testing.T, objects ...string) (*KMM, *dynamicfake.FakeDynamicClient) {
	t.Helper()
	var all []runtime.Object
	for _, text := range objects {
		o := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &o.Object))
		all = append(all, o)
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{NodeModulesConfigs: "NodeModulesConfigList"}, all...)
	return &KMM{Client: client, Node: "node-a", Module: "amdgpu"}, client
}

// config is a NodeModulesConfig as AMD's GPU operator brings one about.
func config(node, modprobe string) string {
	return `
apiVersion: kmm.sigs.x-k8s.io/v1beta1
kind: NodeModulesConfig
metadata: {name: ` + node + `}
spec:
  modules:
  - name: other
    namespace: default
    config: {containerImage: other:1, kernelVersion: 6.8.0, modprobe: {moduleName: other}}
  - name: gpu-operator
    namespace: kube-amd-gpu
    config:
      containerImage: registry.example.com/amdgpu-driver:6.4
      inTreeModulesToRemove: [amdgpu]
      kernelVersion: 6.8.0-45-generic
      modprobe: ` + modprobe + `
status:
  modules: [{name: gpu-operator, namespace: kube-amd-gpu}]
`
}

func TestWhatKMMManages(t *testing.T) {
	for name, test := range map[string]struct {
		objects []string
		want    bool
	}{
		"nothing":               {nil, false},
		"amdgpu here":           {[]string{config("node-a", "{moduleName: amdgpu, firmwarePath: /firmware}")}, true},
		"by its own arguments":  {[]string{config("node-a", "{rawArgs: {load: ['-v', amdgpu], unload: ['-rv', amdgpu]}}")}, true},
		"amdgpu elsewhere":      {[]string{config("node-b", "{moduleName: amdgpu}")}, false},
		"another driver":        {[]string{config("node-a", "{moduleName: amdgpu-next}")}, false},
		"an object without any": {[]string{"{apiVersion: kmm.sigs.x-k8s.io/v1beta1, kind: NodeModulesConfig, metadata: {name: node-a}}"}, false},
	} {
		k, _ := kmm(t, test.objects...)
		got, err := k.Manages(t.Context())
		require.NoError(t, err, name)
		assert.Equal(t, test.want, got, name)
	}
	k, _ := kmm(t, "{apiVersion: kmm.sigs.x-k8s.io/v1beta1, kind: NodeModulesConfig, metadata: {name: node-a}, spec: {modules: amdgpu}}")
	_, err := k.Manages(t.Context())
	assert.ErrorContains(t, err, "read NodeModulesConfig node-a")
}

func TestKMMIsAskedToLoad(t *testing.T) {
	k, client := kmm(t, config("node-a", "{moduleName: amdgpu}"), config("node-b", "{moduleName: amdgpu}"))
	require.NoError(t, k.Load(t.Context()))
	manages, err := k.Manages(t.Context())
	require.NoError(t, err)
	assert.False(t, manages, "the operator has to create it again")
	_, err = client.Resource(NodeModulesConfigs).Get(t.Context(), "node-b", metav1.GetOptions{})
	require.NoError(t, err, "the other node's stays")
	assert.NoError(t, k.Load(t.Context()), "one that is gone already")
}

func TestAPIServerThatRefuses(t *testing.T) {
	resource := schema.GroupResource{Group: "kmm.sigs.x-k8s.io", Resource: "nodemodulesconfigs"}
	for verb, call := range map[string]func(*KMM, context.Context) error{
		"get":    func(k *KMM, ctx context.Context) error { _, err := k.Manages(ctx); return err },
		"delete": (*KMM).Load,
	} {
		k, client := kmm(t, config("node-a", "{moduleName: amdgpu}"))
		clientfake.React(&client.Fake, verb, "nodemodulesconfigs", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(resource, "node-a", errors.New("no"))
		})
		err := call(k, t.Context())
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		assert.ErrorContains(t, err, "node-a")
	}
}

// The operator with modprobe's part of it, from the module's point of view.
func TestReloadByKMM(t *testing.T) {
	h, m := newHost(t)
	k, client := kmm(t, config("node-a", "{moduleName: amdgpu}"))
	clientfake.React(&client.Fake, "delete", "nodemodulesconfigs", func(clienttesting.Action) (bool, runtime.Object, error) {
		assert.Equal(t, absent, h.is(), "first it is unloaded")
		h.set(live) // the operator's worker
		return false, nil, nil
	})
	m.Manager = k
	require.NoError(t, m.Reload(t.Context()))
	assert.Equal(t, []string{unloads}, h.said())
	assert.Equal(t, live, h.is())
}

// Whatever somebody has written into the object, it is read or refused.
func FuzzNodeModulesConfig(f *testing.F) {
	for _, text := range []string{
		config("node-a", "{moduleName: amdgpu}"), "{metadata: {name: node-a}}", "{spec: {modules: [{}, {config: 1}]}}", "{spec: []}",
		"{spec: {modules: [{config: {modprobe: {rawArgs: {load: [1, amdgpu]}}}}]}}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		object := map[string]any{}
		if yaml.Unmarshal(data, &object) != nil || object == nil {
			return
		}
		manages, err := manages(&unstructured.Unstructured{Object: object}, "amdgpu")
		assert.False(t, manages && err != nil)
	})
}

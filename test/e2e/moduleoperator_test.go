package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/kmod"
)

const nodeModulesConfigDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nodemodulesconfigs.kmm.sigs.x-k8s.io}
spec:
  group: kmm.sigs.x-k8s.io
  names: {kind: NodeModulesConfig, plural: nodemodulesconfigs, singular: nodemodulesconfig, listKind: NodeModulesConfigList}
  scope: Cluster
  versions:
  - {name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// nodeModulesConfig is what AMD's GPU operator has the Kernel Module Management operator load on a node.
const nodeModulesConfig = `
apiVersion: kmm.sigs.x-k8s.io/v1beta1
kind: NodeModulesConfig
metadata: {name: ` + nodeC + `}
spec:
  modules:
  - {name: gpu-operator, namespace: kube-amd-gpu, config: {kernelVersion: 6.8.0, modprobe: {moduleName: amdgpu}}}
`

// Where the Kernel Module Management operator loads amdgpu, a memory mode has it load the driver: with
// the plugin's rights and the chart's policy, and never by modprobe.
func TestTheModuleOperatorLoadsTheDriver(t *testing.T) {
	onlyAtNight(t)
	s := start(t)
	loads := s.operateModules()
	s.setProfileLabel(nodeC, "cpx-nps4")
	n := s.waitFollows(nodeC, "cpx-nps4")
	assert.Equal(t, v1beta1.ResultSucceeded, n.Status.History[0].Result)
	s.requireModes(nodeC, "CPX NPS4")
	s.memoryModeBack(nodeC)
	for range 2 {
		select {
		case <-loads:
		case <-time.After(s.patience()):
			require.Fail(t, "the operator was not asked to load the driver")
		}
	}
}

// operateModules does what the operator does about the node's object until the test ends: when it is
// deleted, it creates it again and loads the module. Each load is a value of the channel.
func (s *suite) operateModules() (loads <-chan struct{}) {
	s.t.Helper()
	s.apply(nodeModulesConfigDefinition)
	s.t.Cleanup(func() { s.kubectl("delete", "crd", kmod.NodeModulesConfigs.GroupResource().String()) })
	client, err := dynamic.NewForConfig(s.config)
	require.NoError(s.t, err)
	configs := client.Resource(kmod.NodeModulesConfigs)
	object := &unstructured.Unstructured{}
	require.NoError(s.t, yaml.Unmarshal([]byte(nodeModulesConfig), &object.Object))
	s.eventually("the definition is served", func() (bool, string) {
		_, err := configs.Create(s.ctx, object, metav1.CreateOptions{})
		if err != nil {
			return false, err.Error()
		}
		return true, ""
	})

	ctx, stop := context.WithCancel(s.ctx)
	events, err := configs.Watch(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	done, loaded := make(chan struct{}), make(chan struct{}, 10)
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			if event.Type != watch.Deleted {
				continue
			}
			_, err := configs.Create(ctx, object, metav1.CreateOptions{})
			assert.NoError(s.t, err)
			said, err := s.tryByHandOn(nodeC, action{Modprobe: amd.ModuleName})
			assert.NoError(s.t, err, "%s", said)
			loaded <- struct{}{}
		}
	}()
	s.t.Cleanup(func() { stop(); <-done })
	return loaded
}

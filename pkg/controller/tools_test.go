package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/controller/state"
)

const migConfig = `
version: v1
mig-configs:
  all-disabled:
  - {devices: all, mig-enabled: false}
  all-1g.10gb:
  - {devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}
`

var migConfigs = state.ConfigMap{Namespace: "gpu-operator", Name: "mig", Key: "config.yaml"}

func follows(tools state.Tools) worldOption { return func(w *world) { w.opts.Tools = tools } }

// configMap writes a ConfigMap with one key, or deletes it if the text is empty.
func (w *world) configMap(c state.ConfigMap, content string) {
	w.t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}, Data: map[string]string{c.Key: content}}
	if content == "" {
		require.NoError(w.t, w.api.Delete(w.t.Context(), object))
		return
	}
	if err := w.api.Create(w.t.Context(), object); apierrors.IsAlreadyExists(err) {
		require.NoError(w.t, w.api.Update(w.t.Context(), object))
	} else {
		require.NoError(w.t, err)
	}
}

func (w *world) report(node string) string { return w.node(node).Labels[names.LabelMIGConfigState] }

// A node follows mig-parted's label from a ConfigMap, and reports.
func TestMIGConfigLabel(t *testing.T) {
	w := newWorld(t, follows(state.Tools{v1alpha1.FromMIGParted: migConfigs}))
	w.addNode("node-a")
	w.configMap(migConfigs, migConfig)
	w.run("node-a", time.Hour, inProfile(""))
	assert.Empty(t, w.report("node-a"), "it has no label to report on")

	w.label("node-a", names.LabelMIGConfig, "all-1g.10gb")
	n := w.run("node-a", time.Hour, inProfile("all-1g.10gb"))
	assert.Equal(t, v1alpha1.FromMIGParted, n.Status.Applied.Source)
	require.NotEmpty(t, n.Status.Applied.Rules)
	assert.Equal(t, v1alpha1.MIGStatic, n.Status.Applied.Rules[0].MIG.Mode)
	assert.Equal(t, "success", w.report("node-a"))

	// A name that does not exist.
	w.label("node-a", names.LabelMIGConfig, "all-2g.10gb")
	n = w.run("node-a", time.Hour, func(n *v1alpha1.GPUNode) bool { return ready(n).Reason == names.ReasonProfileNotFound })
	assert.Contains(t, ready(n).Message, "existing profiles: all-1g.10gb, all-disabled")
	assert.Equal(t, "failed", w.report("node-a"))
	assert.Equal(t, "all-1g.10gb", n.Status.Applied.Profile)

	w.label("node-a", names.LabelMIGConfig, "all-disabled")
	w.run("node-a", time.Hour, inProfile("all-disabled"))
	assert.Equal(t, "success", w.report("node-a"))

	// Another version of the configuration.
	w.configMap(migConfigs, strings.Replace(migConfig, "all, mig-enabled: false", `all, mig-enabled: true, mig-devices: {"3g.40gb": 2}`, 1))
	w.run("node-a", time.Hour, func(n *v1alpha1.GPUNode) bool {
		return inProfile("all-disabled")(n) && n.Status.Applied.Rules[0].MIG.Mode == v1alpha1.MIGStatic
	})

	// The removal changes nothing.
	w.label("node-a", names.LabelMIGConfig, "")
	for range 5 {
		w.round("node-a")
	}
	assert.True(t, inProfile("all-disabled")(w.gpuNode("node-a")))
	assert.Equal(t, "success", w.report("node-a"))
	w.clean("node-a")
}

// What is wrong with the ConfigMap is an event on it, and nodes that name it report a failure;
// they keep what they have.
func TestABadConfigMap(t *testing.T) {
	w := newWorld(t, follows(state.Tools{v1alpha1.FromMIGParted: migConfigs}))
	w.addNode("node-a")
	w.configMap(migConfigs, migConfig)
	w.label("node-a", names.LabelMIGConfig, "all-1g.10gb")
	w.run("node-a", time.Hour, inProfile("all-1g.10gb"))
	for name, tt := range map[string]struct{ content, want string }{
		"not YAML":       {"{", "ConfigMap gpu-operator/mig key config.yaml"},
		"nobody's file":  {"a: b", "ConfigMap gpu-operator/mig key config.yaml"},
		"another's file": {`{"gpu-config-profiles": {"cpx": {"profiles": [{"computePartition": "CPX", "memoryPartition": "NPS1", "numGPUsAssigned": 0}]}}}`, "its format is that of the device config manager, and it must be that of mig-parted"},
		"a bad entry":    {strings.Replace(migConfig, "{devices: all, mig-enabled: true", "{devices: 3, mig-enabled: true", 1), "all-1g.10gb"},
		"it is gone":     {"", "ConfigMap gpu-operator/mig does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.configMap(migConfigs, tt.content)
			w.r.ofConfigMap(t.Context(), nil)
			n := w.run("node-a", time.Hour, func(n *v1alpha1.GPUNode) bool { return ready(n).Reason == names.ReasonConfigMapInvalid })
			assert.Contains(t, ready(n).Message, tt.want)
			assert.Contains(t, w.events.texts[len(w.events.texts)-1], "mig Warning ConfigMapInvalid: Nodes that name these configurations keep what they have: ")
			assert.Contains(t, w.events.texts[len(w.events.texts)-1], tt.want)
			assert.Equal(t, "failed", w.report("node-a"))
			assert.Equal(t, "all-1g.10gb", n.Status.Applied.Profile)
			before := len(w.events.texts)
			w.r.ofConfigMap(t.Context(), nil)
			assert.Len(t, w.events.texts, before, "it is told once")

			w.configMap(migConfigs, migConfig)
			w.r.ofConfigMap(t.Context(), nil)
			w.run("node-a", time.Hour, inProfile("all-1g.10gb"))
			assert.Equal(t, "success", w.report("node-a"))
			assert.Contains(t, w.events.texts[len(w.events.texts)-1], "mig Normal ConfigMapValid: ")
		})
	}
}

// Parts of a ConfigMap without a counterpart are told once, also if two projects have the same one.
func TestPartsOfAConfigMapAreIgnored(t *testing.T) {
	const told = "mig Normal ConfigMapPartsIgnored: Key config.yaml has parts without a counterpart: gpuClientSystemdServices: kubelet-gpu"
	w := newWorld(t, follows(state.Tools{v1alpha1.FromDeviceConfigManager: migConfigs, v1alpha1.FromMIGParted: migConfigs}))
	config := `{"gpu-config-profiles": {"cpx": {"profiles": [{"computePartition": "CPX", "memoryPartition": "NPS1", "numGPUsAssigned": 8}]}}%s}`
	services := `, "gpuClientSystemdServices": {"names": ["kubelet-gpu"]}`
	for range 2 {
		w.configMap(migConfigs, fmt.Sprintf(config, services))
		w.r.ofConfigMap(t.Context(), nil)
		require.Len(t, w.events.texts, 2)
		assert.Contains(t, w.events.texts[0], told)
		assert.Contains(t, w.events.texts[1], "mig Warning ConfigMapInvalid: ")
	}
	w.configMap(migConfigs, fmt.Sprintf(config, ""))
	w.r.ofConfigMap(t.Context(), nil)
	w.configMap(migConfigs, fmt.Sprintf(config, services))
	w.r.ofConfigMap(t.Context(), nil)
	require.Len(t, w.events.texts, 3, "they are back")
	assert.Contains(t, w.events.texts[2], told)
}

// Missing rights are a problem that nodes report; an API server that does not answer is not.
func TestAConfigMapThatIsRefused(t *testing.T) {
	w := newWorld(t, follows(state.Tools{v1alpha1.FromMIGParted: migConfigs}))
	var refusal error
	w.refuse = func(verb string, o client.Object) error {
		if _, ok := o.(*corev1.ConfigMap); ok && verb == "get" {
			return refusal
		}
		return nil
	}
	name := state.Name{Source: v1alpha1.FromMIGParted, Profile: "all-1g.10gb", ConfigMap: migConfigs}
	refusal = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "mig", errors.New("no Role"))
	found, err := w.r.configMaps.find(t.Context(), true, name)
	require.NoError(t, err)
	assert.Contains(t, found.Problem, "ConfigMap gpu-operator/mig cannot be read")
	refusal = apierrors.NewTimeoutError("busy", 1)
	_, err = w.r.configMaps.find(t.Context(), true, name)
	require.ErrorContains(t, err, "read ConfigMap gpu-operator/mig")
}

// Kaiwo and nos bring what their labels can name, unless there are PartitionProfiles of the names.
func TestProfilesThatProjectsBring(t *testing.T) {
	w := newWorld(t, follows(state.Tools{v1alpha1.FromKaiwo: {}, v1alpha1.FromNos: {}}))
	w.addNode("node-a")
	w.label("node-a", names.LabelNos, "mig")
	n := w.run("node-a", time.Hour, inProfile("nos-mig"))
	require.NotEmpty(t, n.Status.Applied.Rules)
	assert.Equal(t, v1alpha1.MIGDynamic, n.Status.Applied.Rules[0].MIG.Mode)
	w.profile("nos-mig")
	w.run("node-a", time.Hour, func(n *v1alpha1.GPUNode) bool { return inProfile("nos-mig")(n) && n.Status.Applied.Rules[0].AMD != nil })
	w.label("node-a", names.LabelNos, "some")
	w.run("node-a", time.Hour, func(n *v1alpha1.GPUNode) bool { return ready(n).Reason == names.ReasonProfileNotFound })
	w.label("node-a", names.LabelNos, "")
	w.label("node-a", names.LabelKaiwoEnabled, "true")
	w.label("node-a", names.LabelKaiwoProfile, "cpx")
	n = w.run("node-a", time.Hour, inProfile("cpx"))
	assert.Equal(t, "NPS4", n.Status.Applied.Rules[0].AMD.MemoryPartition)
}

// A report that could not be written is written later, without disturbing anybody again.
func TestAReportIsWrittenLater(t *testing.T) {
	w := newWorld(t, follows(state.Tools{v1alpha1.FromMIGParted: migConfigs}))
	w.addNode("node-a")
	w.configMap(migConfigs, migConfig)
	w.label("node-a", names.LabelMIGConfig, "all-1g.10gb")
	w.run("node-a", time.Hour, inProfile("all-1g.10gb"))
	w.label("node-a", names.LabelMIGConfigState, "pending")
	w.run("node-a", time.Hour, func(*v1alpha1.GPUNode) bool { return w.report("node-a") == "success" })
	assert.Len(t, w.gpuNode("node-a").Status.History, 1)
}

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/adopt"
	"github.com/tranche-dev/tranche/pkg/profile"
)

const migConfig = `
version: v1
mig-configs:
  all-disabled:
  - {devices: all, mig-enabled: false}
  all-1g.10gb:
  - {devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}
`

var migConfigs = adopt.ConfigMap{Namespace: "gpu-operator", Name: "mig", Key: "config.yaml"}

// follows has the controller follow the labels of projects.
func follows(projects map[adopt.Project]adopt.ConfigMap) worldOption {
	return func(w *world) { w.opts.Labels.Projects = projects }
}

// configMap writes a ConfigMap with one key, or deletes it if the text is empty.
func (w *world) configMap(c adopt.ConfigMap, content string) {
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
	w := newWorld(t, follows(map[adopt.Project]adopt.ConfigMap{adopt.MIGParted: migConfigs}))
	w.addNode("node-a")
	w.configMap(migConfigs, migConfig)
	w.run("node-a", time.Hour, inProfile(""))
	assert.Empty(t, w.report("node-a"), "it has no label to report on")

	w.label("node-a", names.LabelMIGConfig, "all-1g.10gb")
	n := w.run("node-a", time.Hour, inProfile("mig-parted.all-1g.10gb"))
	assert.Equal(t, v1beta1.FromLabel, n.Status.Applied.Source)
	assert.Contains(t, ready(n).Message, "profile mig-parted.all-1g.10gb is applied, as set by the node's label nvidia.com/mig.config=all-1g.10gb")
	assert.Equal(t, v1beta1.MIGStatic, appliedRules(t, n)[0].MIG.Mode)
	assert.Equal(t, "success", w.report("node-a"))

	// A name that does not exist.
	w.label("node-a", names.LabelMIGConfig, "all-2g.10gb")
	n = w.run("node-a", time.Hour, func(n *v1beta1.GPUNode) bool { return ready(n).Reason == names.ReasonProfileNotFound })
	assert.Contains(t, ready(n).Message, "existing profiles: all-1g.10gb, all-disabled")
	assert.Equal(t, "failed", w.report("node-a"))
	assert.Equal(t, "mig-parted.all-1g.10gb", n.Status.Applied.ProfileName)

	w.label("node-a", names.LabelMIGConfig, "all-disabled")
	w.run("node-a", time.Hour, inProfile("mig-parted.all-disabled"))
	assert.Equal(t, "success", w.report("node-a"))

	// Another version of the configuration.
	w.configMap(migConfigs, strings.Replace(migConfig, "all, mig-enabled: false", `all, mig-enabled: true, mig-devices: {"3g.40gb": 2}`, 1))
	w.run("node-a", time.Hour, func(n *v1beta1.GPUNode) bool {
		return inProfile("mig-parted.all-disabled")(n) && appliedRules(t, n)[0].MIG.Mode == v1beta1.MIGStatic
	})

	// The removal changes nothing.
	w.label("node-a", names.LabelMIGConfig, "")
	for range 5 {
		w.round("node-a")
	}
	assert.True(t, inProfile("mig-parted.all-disabled")(w.gpuNode("node-a")))
	assert.Equal(t, "success", w.report("node-a"))
	w.clean("node-a")
}

// What is wrong with the ConfigMap is an event on it, and nodes that name it report a failure;
// they keep what they have.
func TestABadConfigMap(t *testing.T) {
	w := newWorld(t, follows(map[adopt.Project]adopt.ConfigMap{adopt.MIGParted: migConfigs}))
	w.addNode("node-a")
	w.configMap(migConfigs, migConfig)
	w.label("node-a", names.LabelMIGConfig, "all-1g.10gb")
	w.run("node-a", time.Hour, inProfile("mig-parted.all-1g.10gb"))
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
			w.r.requestsForConfigMap(t.Context(), nil)
			n := w.run("node-a", time.Hour, func(n *v1beta1.GPUNode) bool { return ready(n).Reason == names.ReasonConfigMapInvalid })
			assert.Contains(t, ready(n).Message, tt.want)
			assert.Contains(t, w.events.texts[len(w.events.texts)-1], "mig Warning ConfigMapInvalid: Nodes that name these configurations keep what they have: ")
			assert.Contains(t, w.events.texts[len(w.events.texts)-1], tt.want)
			assert.Equal(t, "failed", w.report("node-a"))
			assert.Equal(t, "mig-parted.all-1g.10gb", n.Status.Applied.ProfileName)
			before := len(w.events.texts)
			w.r.requestsForConfigMap(t.Context(), nil)
			assert.Len(t, w.events.texts, before, "it is told once")

			w.configMap(migConfigs, migConfig)
			w.r.requestsForConfigMap(t.Context(), nil)
			w.run("node-a", time.Hour, inProfile("mig-parted.all-1g.10gb"))
			assert.Equal(t, "success", w.report("node-a"))
			assert.Contains(t, w.events.texts[len(w.events.texts)-1], "mig Normal ConfigMapValid: ")
		})
	}
}

// Parts of a ConfigMap without a counterpart are told once, also if two projects have the same one.
func TestPartsOfAConfigMapAreIgnored(t *testing.T) {
	const told = "mig Normal ConfigMapPartsIgnored: Key config.yaml has parts without a counterpart: gpuClientSystemdServices: kubelet-gpu"
	w := newWorld(t, follows(map[adopt.Project]adopt.ConfigMap{adopt.DeviceConfigManager: migConfigs, adopt.MIGParted: migConfigs}))
	config := `{"gpu-config-profiles": {"cpx": {"profiles": [{"computePartition": "CPX", "memoryPartition": "NPS1", "numGPUsAssigned": 8}]}}%s}`
	services := `, "gpuClientSystemdServices": {"names": ["kubelet-gpu"]}`
	for range 2 {
		w.configMap(migConfigs, fmt.Sprintf(config, services))
		w.r.requestsForConfigMap(t.Context(), nil)
		require.Len(t, w.events.texts, 2)
		assert.Contains(t, w.events.texts[0], told)
		assert.Contains(t, w.events.texts[1], "mig Warning ConfigMapInvalid: ")
	}
	w.configMap(migConfigs, fmt.Sprintf(config, ""))
	w.r.requestsForConfigMap(t.Context(), nil)
	w.configMap(migConfigs, fmt.Sprintf(config, services))
	w.r.requestsForConfigMap(t.Context(), nil)
	require.Len(t, w.events.texts, 3, "they are back")
	assert.Contains(t, w.events.texts[2], told)
}

// A report that could not be written is written later, without disturbing anybody again.
func TestAReportIsWrittenLater(t *testing.T) {
	w := newWorld(t, follows(map[adopt.Project]adopt.ConfigMap{adopt.MIGParted: migConfigs}))
	w.addNode("node-a")
	w.configMap(migConfigs, migConfig)
	w.label("node-a", names.LabelMIGConfig, "all-1g.10gb")
	w.run("node-a", time.Hour, inProfile("mig-parted.all-1g.10gb"))
	w.label("node-a", names.LabelMIGConfigState, "pending")
	w.run("node-a", time.Hour, func(*v1beta1.GPUNode) bool { return w.report("node-a") == "success" })
	assert.Len(t, w.gpuNode("node-a").Status.History, 1)
}

// appliedRules returns the rules of the applied profile.
func appliedRules(t *testing.T, n *v1beta1.GPUNode) []v1beta1.Rule {
	t.Helper()
	rules, err := profile.StoredRules(n.Status.Applied)
	require.NoError(t, err)
	require.NotEmpty(t, rules)
	return rules
}

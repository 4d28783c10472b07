package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/controller/adopt"
	"github.com/tranche-dev/tranche/test/lab"
)

// migConfigs is a file of mig-parted.
const migConfigs = `
version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  Balanced_A:
    - devices: all
      mig-enabled: true
      mig-devices:
        "1g.10gb": 2
        "2g.20gb": 1
        "3g.40gb": 1
  three-halves:
    - devices: all
      mig-enabled: true
      mig-devices:
        "3g.40gb": 3
`

// waitLabel waits for the value of a label of a node.
func (s *suite) waitLabel(node, key, value string) {
	s.t.Helper()
	s.eventually("label "+key+" of "+node+" is "+value, func() (bool, string) {
		n, err := s.client.CoreV1().Nodes().Get(s.ctx, node, metav1.GetOptions{})
		require.NoError(s.t, err)
		return n.Labels[key] == value, n.Labels[key] + "\n" + gpuNodeText(s.gpuNode(node))
	})
}

// followLabels has the controller obey the labels of another project, until the test ends: then it takes
// the labels off a node. Without a name, the project has no ConfigMap.
func (s *suite) followLabels(project adopt.Project, value string, configMap adopt.ConfigMap, node string, labels ...string) {
	s.t.Helper()
	s.t.Cleanup(func() {
		for _, key := range labels {
			s.labelNode(node, key, "")
		}
		// Without the format, the node is in no profile again.
		if s.lab != nil {
			require.NoError(s.t, s.lab.restartController(s.ctx))
		} else {
			s.helm("rollback", release, "--wait", "--timeout", "8m")
		}
		s.waitFollows(node, "")
	})
	values := "formats." + value + ".enabled=true"
	if configMap.Name != "" {
		configMap.Namespace = s.namespace
		values += ",formats." + value + ".configMap=" + configMap.Namespace + "/" + configMap.Name
	}
	s.set(values)
	if s.lab != nil {
		require.NoError(s.t, s.lab.restartController(s.ctx, func(o *lab.ControllerOptions) {
			o.Labels.Projects = map[adopt.Project]adopt.ConfigMap{project: configMap}
		}))
	}
}

// Without a ConfigMap, the label of mig-manager names a profile of the chart. Its state goes from pending to
// success.
func TestMIGConfigLabelWithoutConfigMap(t *testing.T) {
	onlyAtNight(t)
	s := start(t)
	s.followLabels(adopt.MIGParted, "migParted", adopt.ConfigMap{}, nodeA, names.LabelMIGConfig, names.LabelMIGConfigState)
	s.gpuPod("before", classWhole)
	s.waitRunning("before")
	states := s.watchLabel(nodeA, names.LabelMIGConfigState)
	s.labelNode(nodeA, names.LabelMIGConfig, "all-balanced")
	n := s.waitFollows(nodeA, "all-balanced")
	s.waitLabel(nodeA, names.LabelMIGConfigState, "success")
	assert.Equal(t, []string{"", "pending", "success"}, states())
	assert.Equal(t, v1beta1.FromLabel, n.Status.Applied.Source)
	assert.Equal(t, 8*4, s.machine(nodeA).instances())
}

// Without a ConfigMap, Kaiwo's labels name profiles of the chart, which keep the memory mode.
func TestKaiwoLabelsWithoutConfigMap(t *testing.T) {
	onlyAtNight(t)
	s := start(t)
	s.followLabels(adopt.Kaiwo, "kaiwo", adopt.ConfigMap{}, nodeC, names.LabelKaiwoEnabled, names.LabelKaiwoProfile)
	s.labelNode(nodeC, names.LabelKaiwoEnabled, "true")
	for _, test := range [][2]string{{"cpx", "CPX NPS1"}, {"spx", "SPX NPS1"}} {
		s.labelNode(nodeC, names.LabelKaiwoProfile, test[0])
		s.waitFollows(nodeC, test[0])
		assert.Equal(t, slices.Repeat([]string{test[1]}, 8), s.modeTexts(nodeC))
	}

	// With enabled=false the node keeps what it has, also if somebody ends the pause by hand.
	s.labelNode(nodeC, names.LabelKaiwoEnabled, "false")
	s.labelNode(nodeC, names.LabelKaiwoProfile, "cpx")
	held := func(n *v1beta1.GPUNode) bool { return n.Spec.Paused && readyBecause(names.ReasonPaused)(n) }
	n := s.waitGPUNode(nodeC, "is paused by the label", held)
	assert.Contains(t, s.requireCondition(n, names.ConditionReady, metav1.ConditionTrue, names.ReasonPaused), names.LabelKaiwoEnabled+"=false")
	s.pause(nodeC, false)
	n = s.waitGPUNode(nodeC, "is paused again", func(now *v1beta1.GPUNode) bool { return held(now) && now.Generation > n.Generation+1 })
	assert.Equal(t, "spx", n.Status.Applied.ProfileName)
	assert.Equal(t, slices.Repeat([]string{"SPX NPS1"}, 8), s.modeTexts(nodeC))
	s.labelNode(nodeC, names.LabelKaiwoEnabled, "true")
	s.waitFollows(nodeC, "cpx")
}

// A node that is paused keeps its profile and its pods, whatever names another profile and whoever starts
// again, and serves claims.
func TestPausedNode(t *testing.T) {
	s := start(t)
	s.setProfile("cut-in-three", cutInThree)
	s.unlabelAtEnd(nodeA)
	s.gpuPod("holder", classWhole)
	s.waitRunning("holder")
	s.pause(nodeA, true)
	t.Cleanup(func() { s.pause(nodeA, false) })
	for _, profile := range []string{"all-balanced", "cut-in-three"} {
		s.setProfileLabel(nodeA, profile)
		n := s.waitGPUNode(nodeA, "is paused", func(n *v1beta1.GPUNode) bool {
			return n.Spec.ProfileName == profile && n.Status.ObservedGeneration == n.Generation && readyBecause(names.ReasonPaused)(n)
		})
		assert.Equal(t, v1beta1.Idle, n.Status.State)
		assert.Empty(t, n.Status.Applied.ProfileName)
		assert.Empty(t, s.leftOfSwitches(nodeA))
		s.killControllers()
		s.restartPlugin(nodeA)
	}
	out, err := s.try("kubectl", "tranche", "set-profile", nodeA, "cut-in-three", "--wait")
	require.Error(t, err)
	assert.Contains(t, out, "keeps its applied profile")
	s.gpuPod("small", class1g10gb)
	s.waitRunning("small")
	assert.Equal(t, corev1.PodRunning, s.pod("holder").Status.Phase)
	assert.Equal(t, 1, s.machine(nodeA).instances())

	s.pause(nodeA, false)
	s.waitFollows(nodeA, "cut-in-three")
	s.waitGone("holder")
}

// pause sets spec.paused of a GPUNode with the command of docs/admin/profiles.md.
func (s *suite) pause(node string, paused bool) {
	s.t.Helper()
	s.kubectl("patch", "gpunode", node, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"paused":%t}}`, paused))
}

// The label of nos under both of its names: partitions as pods need them, shares through MPS, or both.
func TestNosLabels(t *testing.T) {
	s := start(t)
	s.followLabels(adopt.Nos, "nos", adopt.ConfigMap{}, nodeA, names.LabelNos, names.LabelNosOlder)
	for _, test := range []struct {
		label, value string
		offers       []string
	}{
		{names.LabelNos, "mps", []string{"MPS share", "gpu"}},
		{names.LabelNosOlder, "hybrid", []string{"MPS share", "gpu", "mig"}},
		{names.LabelNos, "mig", []string{"mig"}},
	} {
		s.labelNode(nodeA, names.LabelNos, "")
		s.labelNode(nodeA, names.LabelNosOlder, "")
		s.labelNode(nodeA, test.label, test.value)
		n := s.waitFollows(nodeA, "nos-"+test.value)
		assert.Equal(t, v1beta1.FromLabel, n.Status.Applied.Source)
		s.eventually(nodeA+" offers what nos does", func() (bool, string) {
			offers := s.offers(nodeA)
			return slices.Equal(test.offers, offers), strings.Join(offers, ", ")
		})
	}
	pod := newPod("unchanged")
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeA}
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("1")}
	s.create(pod)
	s.waitRunning("unchanged")
	s.gpuPod("whole", classWhole)
	s.waitUnschedulable("whole")

	// The newer name has precedence, a value that nos does not know changes nothing, and neither does the end.
	s.labelNode(nodeA, names.LabelNosOlder, "mps")
	s.waitGPUNode(nodeA, "says that the labels disagree", func(n *v1beta1.GPUNode) bool {
		c := meta.FindStatusCondition(n.Status.Conditions, names.ConditionOverridden)
		return c != nil && c.Reason == names.ReasonLabelsDisagree && follows("nos-mig")(n)
	})
	s.labelNode(nodeA, names.LabelNosOlder, "")
	s.labelNode(nodeA, names.LabelNos, "MIG-and-MPS")
	n := s.waitGPUNode(nodeA, "does not know the value", readyBecause(names.ReasonProfileNotFound))
	assert.Equal(t, "nos-mig", n.Status.Applied.ProfileName)
	s.labelNode(nodeA, names.LabelNos, "mig")
	s.waitGPUNode(nodeA, "follows nos again", readyBecause(names.ReasonApplied))
	s.labelNode(nodeA, names.LabelNos, "")
	s.waitGPUNode(nodeA, "is in no profile by a label", func(n *v1beta1.GPUNode) bool { return n.Annotations[names.AnnotationProfileFrom] == "" })
	assert.Equal(t, []string{"mig"}, s.offers(nodeA))
	assert.Equal(t, corev1.PodRunning, s.pod("unchanged").Status.Phase)
	s.deletePods()
}

// offers are the kinds of devices that a node publishes.
func (s *suite) offers(node string) []string {
	s.t.Helper()
	kinds := map[string]bool{}
	for _, slice := range s.slices(node) {
		for _, d := range slice.Spec.Devices {
			switch kind := *d.Attributes[names.AttributeType].StringValue; kind {
			case "share":
				kinds[*d.Attributes[names.AttributeSharingStrategy].StringValue+" share"] = true
			default:
				kinds[kind] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

// dcmConfig is a file of AMD's device config manager.
const dcmConfig = `{"gpu-config-profiles": {"half": {
  "skippedGPUs": {"ids": [0, 5]},
  "profiles": [
    {"computePartition": "CPX", "memoryPartition": "NPS1", "numGPUsAssigned": 3},
    {"computePartition": "DPX", "memoryPartition": "NPS1", "numGPUsAssigned": 2}
  ]}}}`

// The file of AMD's device config manager skips GPUs and counts others. GPUs that it does not count stay.
func TestGPUConfigProfileLabel(t *testing.T) {
	s := start(t)
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config-manager-config"}, Data: map[string]string{"config.json": dcmConfig}}
	_, err := s.client.CoreV1().ConfigMaps(s.namespace).Create(s.ctx, configMap, metav1.CreateOptions{})
	require.NoError(t, err)
	s.followLabels(adopt.DeviceConfigManager, "deviceConfigManager", adopt.ConfigMap{Name: configMap.Name, Key: "config.json"}, nodeC, names.LabelGPUConfigProfile, names.LabelGPUConfigProfileState)
	states := s.watchLabel(nodeC, names.LabelGPUConfigProfileState)
	before := s.modeTexts(nodeC) // an unused GPU keeps the mode of its last claim
	s.labelNode(nodeC, names.LabelGPUConfigProfile, "half")
	s.waitLabel(nodeC, names.LabelGPUConfigProfileState, "success")
	assert.Equal(t, []string{"", "in-progress", "success"}, states())
	const cpx, dpx = "CPX NPS1", "DPX NPS1"
	assert.Equal(t, []string{before[0], cpx, cpx, cpx, dpx, before[5], dpx, before[7]}, s.modeTexts(nodeC))
}

// modeTexts are the modes of the GPUs of a node, in the order of their indexes.
func (s *suite) modeTexts(node string) (all []string) {
	s.t.Helper()
	for _, g := range s.gpuNode(node).Status.Node.GPUs {
		all = append(all, cluster.ModeText(g.GPUModes))
	}
	return all
}

// A node with the label of mig-manager gets the configuration from mig-parted's ConfigMap, whose
// namespace is not that of Tranche; the chart's Role and policy allow what this needs.
func TestMIGConfigLabel(t *testing.T) {
	onlyAtNight(t)
	s := start(t)
	configMaps := s.client.CoreV1().ConfigMaps(s.namespace)
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mig-configs"}, Data: map[string]string{"config.yaml": migConfigs, "other": "{"}}
	s.followLabels(adopt.MIGParted, "migParted", adopt.ConfigMap{Name: configMap.Name, Key: "config.yaml"}, nodeA, names.LabelMIGConfig, names.LabelMIGConfigState)

	s.gpuPod("before", classWhole)
	s.waitRunning("before")
	s.labelNode(nodeA, names.LabelMIGConfig, "Balanced_A")
	s.waitLabel(nodeA, names.LabelMIGConfigState, "failed") // there is no ConfigMap yet
	_, err := configMaps.Create(s.ctx, configMap, metav1.CreateOptions{})
	require.NoError(t, err)
	s.waitLabel(nodeA, names.LabelMIGConfigState, "success")
	s.waitGone("before")
	n := s.waitFollows(nodeA, "mig-parted.balanced-a")
	assert.Equal(t, v1beta1.FromLabel, n.Status.Applied.Source)
	assert.Equal(t, 8*4, s.machine(nodeA).instances())
	s.gpuPod("small", class1g10gb)
	s.waitRunning("small")

	for name, why := range map[string][2]string{
		"typo":         {names.ReasonProfileNotFound, "existing profiles: Balanced_A, all-disabled, three-halves"},
		"three-halves": {names.ReasonProfileDoesNotFit, "3g.40gb"},
	} {
		s.labelNode(nodeA, names.LabelMIGConfig, name)
		s.waitLabel(nodeA, names.LabelMIGConfigState, "failed")
		assert.Contains(t, s.requireCondition(s.gpuNode(nodeA), names.ConditionReady, metav1.ConditionFalse, why[0]), why[1])
		s.labelNode(nodeA, names.LabelMIGConfig, "Balanced_A")
		s.waitLabel(nodeA, names.LabelMIGConfigState, "success")
	}

	// A ConfigMap that is broken is told, and takes nothing away.
	broken := configMap.DeepCopy()
	broken.Data["config.yaml"] = "version: v1\nmig-config: {}\n"
	_, err = configMaps.Update(s.ctx, broken, metav1.UpdateOptions{})
	require.NoError(t, err)
	s.waitLabel(nodeA, names.LabelMIGConfigState, "failed")
	s.waitEvent(func() []corev1.Event {
		list, err := s.client.CoreV1().Events(s.namespace).List(s.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + configMap.Name})
		require.NoError(t, err)
		return list.Items
	}, "the ConfigMap", names.EventConfigMapInvalid, []string{"keep what they have"})
	assert.Equal(t, 8*4, s.machine(nodeA).instances())
	_, err = configMaps.Update(s.ctx, configMap, metav1.UpdateOptions{})
	require.NoError(t, err)
	s.waitLabel(nodeA, names.LabelMIGConfigState, "success")
	require.Equal(t, corev1.PodRunning, s.pod("small").Status.Phase)

	s.delete("small")
	s.labelNode(nodeA, names.LabelMIGConfig, "all-disabled")
	s.waitFollows(nodeA, "mig-parted.all-disabled")
	s.waitLabel(nodeA, names.LabelMIGConfigState, "success")
	assert.Zero(t, s.machine(nodeA).instances())

	// The removal of the label changes nothing: the controller has looked when it ends a report.
	s.labelNode(nodeA, names.LabelMIGConfig, "")
	s.labelNode(nodeA, names.LabelMIGConfigState, "pending")
	s.waitLabel(nodeA, names.LabelMIGConfigState, "success")
	s.waitFollows(nodeA, "mig-parted.all-disabled")
}

// labelNode sets a label of a node, or removes it if the value is empty.
func (s *suite) labelNode(node, key, value string) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	if value == "" {
		patch = fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, key)
	}
	_, err := s.client.CoreV1().Nodes().Patch(s.ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(s.t, err)
}

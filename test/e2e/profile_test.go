package e2e

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// controllerLabel is on the pods of the controller.
const controllerLabel = "app.kubernetes.io/component=controller"

// gpuNode reads how far a node is; nil if nobody has said anything of it.
func (s *suite) gpuNode(node string) *v1beta1.GPUNode {
	s.t.Helper()
	n, err := s.tranche.GPUNodes().Get(s.ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(s.t, err)
	return n
}

// waitGPUNode waits until a GPUNode is as it should be.
func (s *suite) waitGPUNode(node, what string, ok func(*v1beta1.GPUNode) bool) (n *v1beta1.GPUNode) {
	s.t.Helper()
	s.eventually("GPUNode "+node+" "+what, func() (bool, string) {
		n = s.gpuNode(node)
		if n == nil {
			return false, "there is none"
		}
		return ok(n), gpuNodeText(n)
	})
	return n
}

// gpuNodeText is what a person looks at first.
func gpuNodeText(n *v1beta1.GPUNode) string {
	status := n.Status.DeepCopy()
	if status.Node != nil {
		status.Node.GPUs = nil
	}
	text, _ := yaml.Marshal(status)
	return string(text)
}

// follows reports whether a node follows a profile, empty: none, and no switch is under
// way.
func follows(profile string) func(*v1beta1.GPUNode) bool {
	return func(n *v1beta1.GPUNode) bool {
		st := &n.Status
		return st.State == v1beta1.Idle && st.Applied != nil && st.Desired != nil && st.Node != nil &&
			st.Applied.ProfileName == profile && st.Applied.Hash == st.Desired.Hash && st.Applied.Hash == st.Node.AppliedHash
	}
}

func inState(state v1beta1.State) func(*v1beta1.GPUNode) bool {
	return func(n *v1beta1.GPUNode) bool { return n.Status.State == state }
}

// readyBecause reports whether a reason is that of the condition Ready.
func readyBecause(reason string) func(*v1beta1.GPUNode) bool {
	return func(n *v1beta1.GPUNode) bool {
		c := meta.FindStatusCondition(n.Status.Conditions, names.ConditionReady)
		return c != nil && c.Reason == reason
	}
}

// waitFollows waits until a node follows a profile, empty: none, and checks that
// nothing of the switch is left.
func (s *suite) waitFollows(node, profile string) *v1beta1.GPUNode {
	s.t.Helper()
	n := s.waitGPUNode(node, fmt.Sprintf("follows profile %q", profile), follows(profile))
	s.requireCondition(n, names.ConditionReady, metav1.ConditionTrue, names.ReasonApplied)
	s.requireUntainted(node)
	return n
}

// waitFailed waits until a switch has failed, and checks that nothing of it is left.
func (s *suite) waitFailed(node, reason string) *v1beta1.GPUNode {
	s.t.Helper()
	n := s.waitGPUNode(node, "has failed", inState(v1beta1.Failed))
	s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, reason)
	s.requireUntainted(node)
	return n
}

// requireCondition checks a condition and returns its message.
func (s *suite) requireCondition(n *v1beta1.GPUNode, kind string, status metav1.ConditionStatus, reason string) string {
	s.t.Helper()
	c := meta.FindStatusCondition(n.Status.Conditions, kind)
	require.NotNil(s.t, c, "%s\n%s", kind, gpuNodeText(n))
	require.Equal(s.t, status, c.Status, "%s\n%s", kind, gpuNodeText(n))
	require.Equal(s.t, reason, c.Reason, "%s\n%s", kind, gpuNodeText(n))
	return c.Message
}

// switchTaints are the devices of a node that its plugin has tainted for a switch, as
// the API server has them.
func (s *suite) switchTaints(node string) (tainted []string) {
	s.t.Helper()
	list, err := s.client.ResourceV1().ResourceSlices().List(s.ctx, metav1.ListOptions{FieldSelector: fields.Set{
		resourceapi.ResourceSliceSelectorNodeName: node, resourceapi.ResourceSliceSelectorDriver: names.DriverName,
	}.String()})
	require.NoError(s.t, err)
	for i := range list.Items {
		for _, d := range list.Items[i].Spec.Devices {
			for _, taint := range d.Taints {
				if taint.Key == names.TaintSwitching {
					assert.Equal(s.t, resourceapi.DeviceTaintEffectNoSchedule, taint.Effect)
					tainted = append(tainted, d.Name)
				}
			}
		}
	}
	return tainted
}

// leftOfSwitches is what switches have left on a node: taints of devices and of the node,
// paused monitoring pods.
func (s *suite) leftOfSwitches(node string) []string {
	s.t.Helper()
	left := s.switchTaints(node)
	n, err := s.client.CoreV1().Nodes().Get(s.ctx, node, metav1.GetOptions{})
	require.NoError(s.t, err)
	for _, taint := range n.Spec.Taints {
		if taint.Key == names.TaintNodeSwitching {
			left = append(left, "taint "+taint.ToString())
		}
	}
	for key, value := range n.Labels {
		if value == names.PausedValue {
			left = append(left, "label "+key)
		}
	}
	return left
}

// requireUntainted waits until nothing of a switch is left on a node.
func (s *suite) requireUntainted(node string) {
	s.t.Helper()
	s.eventually("nothing of a switch is left on "+node, func() (bool, string) {
		left := s.leftOfSwitches(node)
		return len(left) == 0, strings.Join(left, "\n")
	})
}

// requireNoProfile waits until all nodes follow no profile, and nothing of switches is
// left.
func (s *suite) requireNoProfile() {
	s.t.Helper()
	for _, node := range s.nodes {
		n, err := s.client.CoreV1().Nodes().Get(s.ctx, node, metav1.GetOptions{})
		require.NoError(s.t, err)
		assert.Empty(s.t, n.Labels[names.LabelProfile], "%s has the label still", node)
		s.waitGPUNode(node, "follows no profile", follows(s.resting))
		s.requireUntainted(node)
	}
}

// setProfileLabel changes the node's label that names its profile; empty takes it off.
func (s *suite) setProfileLabel(node, profile string) {
	s.t.Helper()
	value := "null"
	if profile != "" {
		value = fmt.Sprintf("%q", profile)
	}
	_, err := s.client.CoreV1().Nodes().Patch(s.ctx, node, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, names.LabelProfile, value), metav1.PatchOptions{})
	require.NoError(s.t, err)
}

// unlabelAtEnd takes the node's label off at the end of the test, and waits until the node
// is as before.
func (s *suite) unlabelAtEnd(node string) {
	s.t.Helper()
	before := s.settled(node)
	s.t.Cleanup(func() {
		s.clearFaults(node)
		s.deletePods()
		s.setProfileLabel(node, "")
		s.waitGPUNode(node, "follows no profile", follows(""))
		s.eventually(node+" publishes what it did before", func() (bool, string) {
			now := s.published(node)
			return slices.Equal(before, now), strings.Join(now, "\n")
		})
	})
}

// follow makes a node follow a profile, until the test ends.
func (s *suite) follow(node, profile string) *v1beta1.GPUNode {
	s.t.Helper()
	s.labelProfile(node, profile)
	return s.waitFollows(node, profile)
}

// killControllers ends all of the controller's pods at once.
func (s *suite) killControllers() {
	s.t.Helper()
	if s.lab != nil {
		require.NoError(s.t, s.lab.restartController(s.ctx))
		return
	}
	grace := int64(0)
	pods := s.client.CoreV1().Pods(pluginNamespace)
	old, err := pods.List(s.ctx, metav1.ListOptions{LabelSelector: controllerLabel})
	require.NoError(s.t, err)
	require.NotEmpty(s.t, old.Items)
	require.NoError(s.t, pods.DeleteCollection(s.ctx, metav1.DeleteOptions{GracePeriodSeconds: &grace}, metav1.ListOptions{LabelSelector: controllerLabel}))
	s.eventually("the controller's pods are gone", func() (bool, string) {
		for i := range old.Items {
			if now, err := pods.Get(s.ctx, old.Items[i].Name, metav1.GetOptions{}); err == nil && now.UID == old.Items[i].UID {
				return false, now.Name
			}
		}
		return true, ""
	})
}

// devicesOn are the devices that a node publishes of a GPU, by name.
func (s *suite) devicesOn(node, gpuID string) map[string]*resourceapi.Device {
	s.t.Helper()
	out := map[string]*resourceapi.Device{}
	for _, slice := range s.slices(node) {
		for i := range slice.Spec.Devices {
			if d := &slice.Spec.Devices[i]; gpu.OfDevice(d.Name) == gpuID {
				out[d.Name] = d
			}
		}
	}
	return out
}

// slowPod makes a pod on a node that takes some seconds to end when it is asked to.
func (s *suite) slowPod(node, name, class string, seconds int64) *corev1.Pod {
	s.t.Helper()
	template, _, _ := strings.Cut(class, ".")
	s.template(template, resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request(class, "")}})
	pod := newPod(name, fromTemplate(template))
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	// It ends when it is killed: a program that is process 1 ignores what it does not
	// handle.
	pod.Spec.TerminationGracePeriodSeconds = &seconds
	s.create(pod)
	return s.waitRunning(name)
}

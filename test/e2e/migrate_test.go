package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

// migrateFolder has the demos of TestMigrations. On its cluster, node-a has A100s with 40 GB,
// node-b with 80 GB, all with MIG mode off, and node-c MI300Xs.
const migrateFolder = repository + "/demo/migrate"

// Labels, ConfigMaps and pods of other systems work as they are, with the commands of the READMEs.
func TestMigrations(t *testing.T) {
	s := startAlone(t)
	s.resting = "device-plugin.none"
	for _, file := range []string{"eks/configs.yaml", "kaiwo/config-map.yaml"} {
		s.kubectl("apply", "--validate=strict", "-f", filepath.Join(migrateFolder, file))
	}
	s.useValues()
	t.Run("eks", func(t *testing.T) { s.on(t).migrateEKS() })
	t.Run("nos", func(t *testing.T) { s.on(t).migrateNos() })
	t.Run("kaiwo", func(t *testing.T) { s.on(t).migrateKaiwo() })
	t.Run("reboot", func(t *testing.T) { s.on(t).migrateWithReboot() })
}

// MIG manager's label and the seven partitions of a GPU in one container; then time-slicing of
// partitions, and a file with a misspelt key.
func (s *suite) migrateEKS() {
	const namespace = "demo-migrate-eks"
	s.t.Cleanup(func() {
		s.kubectl("uncordon", nodeB)
		s.kubectl("delete", "--ignore-not-found", "namespace", namespace)
		s.labelNode(nodeA, names.LabelDevicePluginConfig, "")
		s.labelNode(nodeA, names.LabelMIGConfig, "")
		s.setProfileLabel(nodeA, "all-disabled")
		s.waitFollows(nodeA, "all-disabled")
		s.setProfileLabel(nodeA, "")
	})
	s.kubectl("cordon", nodeB) // its whole GPUs are nvidia.com/gpu, too
	s.run(s.migration("eks", 0, nodeA))
	s.run(s.migration("eks", 1, nodeA))
	assert.Equal(s.t, 8*7, s.machine(nodeA).instances())
	s.run(s.migration("eks", 2, nodeA))
	var pods map[string]*corev1.Pod
	s.eventually("eight pods fill the node", func() (bool, string) {
		pods = s.demoPods(namespace)
		return len(pods) == 8, fmt.Sprintf("there are %d", len(pods))
	})
	devices := map[string]int{}
	for _, pod := range pods {
		results := s.claims(pod)[0].Status.Allocation.Devices.Results
		assert.Len(s.t, results, 7)
		for _, r := range results {
			devices[r.Device]++
		}
	}
	assert.Len(s.t, devices, 8*7)

	share, use, _ := strings.Cut(s.migration("eks", 3, nodeA), "kubectl apply -f demo/migrate/eks/time-sliced.yaml")
	s.run(share)
	// The slices of the GPUs change one after another. Pods that came meanwhile could use more partitions.
	s.eventually("all GPUs of "+nodeA+" offer shares of partitions", func() (bool, string) {
		gpus := map[string]bool{}
		for _, slice := range s.slices(nodeA) {
			for _, d := range slice.Spec.Devices {
				if name, _, isPartition := strings.Cut(d.Name, "-mig-"); isPartition && strings.HasSuffix(d.Name, "-fraction-share") {
					gpus[name] = true
				}
			}
		}
		return len(gpus) == 8, fmt.Sprintf("%d do", len(gpus))
	})
	s.run("kubectl apply --validate=strict -f demo/migrate/eks/time-sliced.yaml" + use)
	s.eventually("eleven pods share partitions", func() (bool, string) {
		pods = s.demoPods(namespace)
		return len(pods) == 11, fmt.Sprintf("there are %d", len(pods))
	})
	clear(devices)
	for _, pod := range pods {
		devices[s.allocated(pod, "").Device]++
	}
	assert.Len(s.t, devices, 2, "ten replicas fill a partition: %v", devices)
	assert.Equal(s.t, 8*7, s.machine(nodeA).instances())

	configMaps := s.client.CoreV1().ConfigMaps("gpu-operator")
	configs, err := configMaps.Get(s.ctx, "time-slicing-config", metav1.GetOptions{})
	require.NoError(s.t, err)
	configs.Data["slice-10"] = strings.NewReplacer("flags:", "flages:", "failRequestsGreaterThanOne", "failRequestGreaterThanOne").Replace(configs.Data["slice-10"])
	_, err = configMaps.Update(s.ctx, configs, metav1.UpdateOptions{})
	require.NoError(s.t, err)
	s.waitEvent(func() []corev1.Event {
		list, err := s.client.CoreV1().Events(configs.Namespace).List(s.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + configs.Name})
		require.NoError(s.t, err)
		return list.Items
	}, "the ConfigMap", names.EventConfigMapInvalid, []string{"slice-10", "flages", "did you mean flags", "failRequestGreaterThanOne"})
	assert.Len(s.t, s.demoPods(namespace), 11)
}

// The label of nos and a pod with its limits. MIG mode is off before.
func (s *suite) migrateNos() {
	const namespace = "demo-migrate-nos"
	s.t.Cleanup(func() {
		s.labelNode(nodeB, names.LabelNosOlder, "")
		s.setProfileLabel(nodeB, "all-disabled")
		s.waitFollows(nodeB, "all-disabled")
		s.setProfileLabel(nodeB, "")
	})
	s.run(s.migration("nos", 0, nodeB))
	n := s.waitGPUNode(nodeB, "follows nos", follows("nos-mig.device-plugin.none")) // with the default of demo/migrate/values.yaml
	assert.Equal(s.t, v1beta1.FromLabel, n.Status.Applied.Source)
	for _, g := range n.Status.Node.GPUs {
		assert.Equal(s.t, v1beta1.MIGModeEnabled, g.MIGMode, g.Name)
	}
	s.t.Cleanup(func() { s.kubectl("delete", "--ignore-not-found", "namespace", namespace) })
	begin, end, _ := strings.Cut(s.migration("nos", 1, nodeB), "kubectl delete")
	s.run(begin)
	pod := s.demoPods(namespace)["mig-partitioning-example"]
	assert.Equal(s.t, nodeB, pod.Spec.NodeName)
	s.requireSees(pod, "sleepy", s.allocated(pod, ""), "1g.10gb")
	assert.Equal(s.t, 1, s.machine(nodeB).instances())
	s.run("kubectl delete" + end)
	s.eventually("the partition is gone", func() (bool, string) {
		return s.machine(nodeB).instances() == 0, s.machine(nodeB).String()
	})
}

// Kaiwo's labels, and the way back.
func (s *suite) migrateKaiwo() {
	set := func(enabled, profile string) {
		s.labelNode(nodeC, names.LabelKaiwoProfile, profile)
		s.labelNode(nodeC, names.LabelKaiwoEnabled, enabled)
	}
	s.t.Cleanup(func() {
		set("", "")
		s.setProfileLabel(nodeC, "spx-nps1")
		s.waitFollows(nodeC, "spx-nps1")
		s.setProfileLabel(nodeC, "")
	})
	modes := func(profile, want string) {
		s.t.Helper()
		n := s.waitGPUNode(nodeC, "follows "+profile, follows(profile))
		assert.Equal(s.t, v1beta1.FromLabel, n.Status.Applied.Source)
		for _, g := range n.Status.Node.GPUs {
			assert.Equal(s.t, want, cluster.ModeText(g.GPUModes), g.Name)
		}
	}
	s.run(s.migration("kaiwo", 0, nodeC))
	modes("kaiwo.cpx", "CPX NPS4")
	set("false", "spx")
	s.waitGPUNode(nodeC, "keeps its profile", func(n *v1beta1.GPUNode) bool {
		return n.Status.State == v1beta1.Idle && n.Status.Applied.ProfileName == "kaiwo.cpx"
	})
	set("true", "spx")
	modes("kaiwo.spx", "SPX NPS1")
}

// A100s whose reset is refused, as in some virtual machines. The state says so; when reboots
// are allowed, the node reboots, and the label's state is never stuck.
func (s *suite) migrateWithReboot() {
	s.t.Cleanup(func() {
		s.clearFaults(nodeA)
		s.setProfileLabel(nodeA, "all-disabled")
		s.labelNode(nodeA, names.LabelMIGConfig, "")
		s.waitFollows(nodeA, "all-disabled")
		s.setProfileLabel(nodeA, "")
	})
	n := s.gpuNode(nodeA)
	boot := n.Status.Node.BootID
	for _, g := range n.Status.Node.GPUs {
		require.Equal(s.t, v1beta1.MIGModeDisabled, g.MIGMode, g.Name)
	}
	s.run(s.migration("eks", 5, nodeA))
	n = s.waitFailed(nodeA, names.ReasonRebootRequired)
	said := s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, names.ReasonRebootRequired)
	for _, part := range []string{"could not be applied", "The node is unchanged", "Set spec.switch.reboot: IfRequired", "or reboot the node"} {
		assert.Contains(s.t, said, part)
	}
	for _, g := range n.Status.Node.GPUs {
		assert.Equal(s.t, v1beta1.MIGModeDisabled, g.MIGMode, g.Name)
	}
	assert.Zero(s.t, s.machine(nodeA).instances())

	states := s.watchLabel(nodeA, names.LabelMIGConfigState)
	s.useValues()
	s.run(s.migration("eks", 6, nodeA))
	assert.Contains(s.t, states(), "rebooting")
	s.waitNodeEvent(nodeA, names.EventRebooting, "profile mig-parted.all-1g.5gb.device-plugin.none can only be applied to its GPUs with a reboot")
	n = s.gpuNode(nodeA)
	assert.NotEqual(s.t, boot, n.Status.Node.BootID)
	assert.Equal(s.t, v1beta1.ResultSucceeded, n.Status.History[0].Result)
	assert.Equal(s.t, 8*7, s.machine(nodeA).instances())
	s.requireUntainted(nodeA)
}

// watchLabel returns what a label of a node has been since, without repetitions.
func (s *suite) watchLabel(node, key string) (seen func() []string) {
	s.t.Helper()
	w, err := s.client.CoreV1().Nodes().Watch(s.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + node})
	require.NoError(s.t, err)
	var values []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range w.ResultChan() {
			if n, ok := event.Object.(*corev1.Node); ok {
				values = append(values, n.Labels[key])
			}
		}
	}()
	return func() []string {
		w.Stop()
		<-done
		return slices.Compact(values)
	}
}
